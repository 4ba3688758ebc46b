"""User data: the script that turns a bare machine into one of ours.

It runs as root on a cloud's image and as an ordinary user under the local provider, may be run again at any line, and must come up with the
daemon away once it has fetched the agent. It carries the bootstrap credential, which therefore goes from a here-document straight into a
0600 file and never into an argument or a variable, where every process of the machine could read it.

A line that fails is said on the console and, as soon as there is a Python to say it with, to the daemon.
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
root="${SPOTD_ROOT:-/var/lib/spotd-agent}"
python=
failed() {
  code=$?
  trap - ERR
  echo "spotd boot: failed while $step (line $1, exit code $code)" >&2
  if [ -n "$python" ] && [ -f "$root/boot.py" ] && [ -f "$root/agent.json" ]; then
    "$python" -I "$root/boot.py" report "$root/agent.json" "$step" "$1" "$code" || true
  fi
  exit "$code"
}
trap 'failed "$LINENO"' ERR
"""

_DIRECTORY = """
step="making the directory"
mkdir -p -- "$root"
"""

_PYTHON = """
step="looking for python3, 3.9 or newer, with TLS"
for candidate in python3 python3.13 python3.12 python3.11 python3.10 python3.9 \\
    /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3; do
  if "$candidate" -I -c 'import ssl, sys; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1; then
    python="$(command -v "$candidate")"
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
_PROGRAM = r"""
step="writing the fetching program"
cat >"$root/boot.py" <<'END_OF_PROGRAM'
import hashlib, http.client, json, os, random, ssl, sys, time
from urllib.parse import urlsplit

mode, configuration, *arguments = sys.argv[1:]
with open(configuration) as stream:
    configuration = json.load(stream)
pinned = ssl.PEM_cert_to_DER_cert(configuration["certificate"].strip())
address = urlsplit(configuration["address"])


def ask(method, path, body=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate itself is compared below
    connection = http.client.HTTPSConnection(address.hostname, address.port, timeout=20, context=context)
    try:
        connection.connect()
        if connection.sock.getpeercert(binary_form=True) != pinned:
            raise OSError("another certificate than the daemon's answers there")
        connection.request(method, address.path.rstrip("/") + path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        if not 200 <= answer.status < 300:
            raise OSError("HTTP %d" % answer.status)
        return answer.read(1 << 26)
    finally:
        connection.close()


def report(step, line, code):
    body = {"instance": configuration["instance"], "credential": configuration["bootstrap_credential"]}
    body.update(step=step[:200], line=int(line), code=int(code))
    for pause in (1, 4, 15, 0):
        try:
            ask("POST", "/v1/agent/boot-failed", json.dumps(body))
            return
        except (OSError, http.client.HTTPException) as error:
            print("spotd boot: the daemon cannot be told: %s" % error, file=sys.stderr, flush=True)
            time.sleep(pause)


def there(target, wanted):
    try:
        with open(target, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest() == wanted
    except OSError:
        return False


def fetch(target, wanted):
    pause, said = 0.2, None
    while not there(target, wanted):
        try:
            content = ask("GET", "/agent.pyz?sha256=" + wanted)
            if hashlib.sha256(content).hexdigest() != wanted:
                raise OSError("what came is not the agent this machine was started for")
        except (OSError, http.client.HTTPException) as error:
            problem = "%s: %s" % (type(error).__name__, error)
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


{"fetch": fetch, "report": report}[mode](*arguments)
END_OF_PROGRAM
"""

_FETCH = """
step="fetching the agent"
"$python" -I "$root/boot.py" fetch "$root/agent.json" "$root/agent.pyz" %s
"""

#: As a unit of systemd where that runs the machine; under a root of its own (tests, the local provider) as what this script becomes.
#: KillMode=process: the job belongs to the shim and outlives its agent. At a shutdown the unit is stopped before docker and the network,
#: because it was started after them (facts/reclaim.md §1.12). Exit codes 2 and 3 will not get better by another start.
_START = """
step="starting the agent"
cd -- "$root"
units="${SPOTD_UNITS:-}"
if [ -z "$units" ] && [ -z "${SPOTD_ROOT:-}" ] && [ -d /run/systemd/system ]; then
  units=/etc/systemd/system
fi
if [ -z "$units" ]; then
  exec "$python" "$root/agent.pyz" agent --config "$root/agent.json" --root "$root" \\
    --power-off "${SPOTD_POWER_OFF:-systemctl poweroff}"
fi
step="making the user that the job runs as"
if ! id -u spotd-job >/dev/null 2>&1; then
  useradd --system --create-home --shell /bin/bash spotd-job
fi
step="starting the agent's unit"
cat >"$units/spotd-agent.service" <<END_OF_UNIT
[Unit]
Description=spotd agent
After=network-online.target docker.service
Wants=network-online.target

[Service]
ExecStart=$python $root/agent.pyz agent --config $root/agent.json --root $root --power-off "systemctl poweroff" --user spotd-job
WorkingDirectory=$root
KillMode=process
TimeoutStopSec=100
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2 3
StandardOutput=journal+console
StandardError=journal+console

[Install]
WantedBy=multi-user.target
END_OF_UNIT
chmod 644 "$units/spotd-agent.service"
systemctl daemon-reload
systemctl enable --quiet spotd-agent.service
systemctl start --no-block spotd-agent.service
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
    script = _BEGIN + _DIRECTORY + _PYTHON + _CONFIGURATION % configuration + _PROGRAM + _FETCH % agent_sha256 + _START
    if len(script.encode("ascii")) >= _LIMIT:
        raise ValueError(f"the boot script has {len(script)} characters, more than the {_LIMIT} a cloud takes")
    return script
