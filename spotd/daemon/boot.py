"""User data: the script that turns a bare machine into one of ours.

It runs as root on a cloud's image and as an ordinary user under the local provider, may be run again at any line, and must come up with the
daemon away once it has fetched the agent. It carries the bootstrap credential, which therefore goes from a here-document straight into a
0600 file and never into an argument or a variable, where every process of the machine could read it.
"""

from __future__ import annotations

import json
import re

#: EC2 takes 16 KB of user data before base64.
_LIMIT = 16 * 1024

_BEGIN = """\
#!/bin/bash
# Written by spotd: fetches the agent and becomes it.
set -Eeuo pipefail
umask 077
step="preparing"
trap 'echo "spotd boot: failed while $step" >&2' ERR
"""

_DIRECTORY = """
step="making the directory"
root="${SPOTD_ROOT:-/var/lib/spotd-agent}"
mkdir -p -- "$root"
"""

_PYTHON = """
step="looking for python3, 3.9 or newer, with TLS"
python=
for candidate in python3 python3.13 python3.12 python3.11 python3.10 python3.9 \\
    /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3; do
  if "$candidate" -I -c 'import ssl, sys; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1; then
    python="$candidate"
    break
  fi
done
if [ -z "$python" ]; then
  echo "spotd boot: failed while $step: there is none on this machine" >&2
  exit 1
fi
"""

_CONFIGURATION = """
step="writing the agent's configuration"
cat >"$root/agent.json.new" <<'END_OF_CONFIGURATION'
%s
END_OF_CONFIGURATION
chmod 600 "$root/agent.json.new"
mv -f -- "$root/agent.json.new" "$root/agent.json"
"""

#: Reads the address and the certificate from the configuration; compares the certificate before it sends anything.
_FETCH = r"""
step="fetching the agent"
"$python" -I - "$root/agent.json" "$root/agent.pyz" %s <<'END_OF_PROGRAM'
import hashlib, http.client, json, os, random, ssl, sys, time
from urllib.parse import urlsplit

configuration, target, wanted = sys.argv[1:]
with open(configuration) as stream:
    configuration = json.load(stream)
pinned = ssl.PEM_cert_to_DER_cert(configuration["certificate"].strip())
address = urlsplit(configuration["address"])


def fetch():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate itself is compared below
    connection = http.client.HTTPSConnection(address.hostname, address.port, timeout=20, context=context)
    try:
        connection.connect()
        if connection.sock.getpeercert(binary_form=True) != pinned:
            raise OSError("another certificate than the daemon's answers there")
        connection.request("GET", address.path.rstrip("/") + "/agent.pyz")
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError("HTTP %%d" %% answer.status)
        content = answer.read(1 << 26)
    finally:
        connection.close()
    if hashlib.sha256(content).hexdigest() != wanted:
        raise OSError("what came is not the agent this machine was started for")
    return content


def there():
    try:
        with open(target, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest() == wanted
    except OSError:
        return False


pause, said = 0.2, None
while not there():
    try:
        content = fetch()
    except (OSError, http.client.HTTPException) as error:
        problem = "%%s: %%s" %% (type(error).__name__, error)
        if problem != said:
            said = problem
            print("spotd boot: the agent cannot be fetched yet: " + problem, file=sys.stderr, flush=True)
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 2, 30.0)
        continue
    with open(target + ".new", "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(target + ".new", target)
END_OF_PROGRAM
"""

_START = """
step="starting the agent"
cd -- "$root"
exec "$python" "$root/agent.pyz" agent --config "$root/agent.json" --root "$root" \\
  --power-off "${SPOTD_POWER_OFF:-systemctl poweroff}"
"""


def user_data(instance_id: str, address: str, certificate_pem: str, credential: str, agent_sha256: str) -> str:
    """The boot script of one instance: the same for the same arguments, byte for byte. Raises ValueError for what cannot be one."""
    if not re.fullmatch(r"https://[!-~]+", address):
        raise ValueError(f"{address!r} is not an https address")
    if not re.fullmatch(r"[0-9a-f]{64}", agent_sha256):
        raise ValueError(f"{agent_sha256!r} is not a sha256")
    configuration = json.dumps(
        {
            "address": address,
            "certificate": certificate_pem,
            "instance": instance_id,
            "bootstrap_credential": credential,
        }
    )
    script = _BEGIN + _DIRECTORY + _PYTHON + _CONFIGURATION % configuration + _FETCH % agent_sha256 + _START
    if len(script.encode("ascii")) >= _LIMIT:
        raise ValueError(f"the boot script has {len(script)} characters, more than the {_LIMIT} a cloud takes")
    return script
