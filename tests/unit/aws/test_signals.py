"""What the score and the advisor's band make of an offer's prior, and how their answers are read."""

from __future__ import annotations

import itertools
import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from typing import Any

import pytest

from spotd.core.errors import Misconfigured, ProviderError
from spotd.core.survival import PRIOR_MEAN_LIFE_HOURS
from spotd_aws.advisor import Advisor, parse, read_bands
from spotd_aws.prior import prior_per_hour
from spotd_aws.scores import Question, by_zone, questions

OWN = 1 / PRIOR_MEAN_LIFE_HOURS
NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def _document(**changes: object) -> dict[str, Any]:
    """As the file is made (facts/cloud-api.md §1.5)."""
    limits = {0: 5, 1: 11, 2: 16, 3: 22, 4: 100}
    whole: dict[str, Any] = {
        "global_rate": "<10%",
        "ranges": [{"index": index, "label": f"{most}%", "dots": index, "max": most} for index, most in limits.items()],
        "instance_types": {"g5.xlarge": {"cores": 4, "emr": True, "ram_gb": 16.0}},
        "spot_advisor": {
            "us-west-2": {"Linux": {"g5.xlarge": {"s": 60, "r": 0}, "p5.48xlarge": {"s": 20, "r": 4}}, "Windows": {"x": {"s": 1, "r": 1}}}
        },
    }
    return whole | changes


class _Answering(BaseHTTPRequestHandler):
    """Serves the data."""

    def do_GET(self) -> None:
        body = json.dumps(_document()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quietly."""


# Priors


def test_better_signals_never_mean_more_reclaims() -> None:
    """A higher score and a lower band lean towards fewer, by a factor of two at most, and the middle is our own prior."""
    by_score = [prior_per_hour(score, None) or 0 for score in range(1, 11)]
    by_band = [prior_per_hour(None, percent) or 0 for percent in range(101)]
    assert all(a >= b for a, b in itertools.pairwise(by_score))
    assert all(a <= b for a, b in itertools.pairwise(by_band))
    assert all(OWN / 2 <= rate <= OWN * 2 for rate in by_score + by_band)
    assert prior_per_hour(5, None) == prior_per_hour(None, 16) == pytest.approx(OWN)


def test_the_score_goes_before_the_band_and_no_signal_is_no_prior() -> None:
    """The score is the better predictor (SpotLake, facts/placement.md §2)."""
    assert prior_per_hour(9, 100) == prior_per_hour(9, None)
    assert prior_per_hour(None, None) is None


# The advisor


def test_bands_of_linux_by_region_and_type() -> None:
    """As the upper end of the band, by the file's own ranges."""
    assert parse(_document()) == {("us-west-2", "g5.xlarge"): 5, ("us-west-2", "p5.48xlarge"): 100}


@pytest.mark.parametrize("row", [None, 7, {}, {"r": None}, {"r": 9}, {"r": "0"}])
def test_a_row_that_is_none_costs_only_itself(row: object) -> None:
    """The rest of the file is good."""
    types = {"g6.xlarge": row, "g5.xlarge": {"s": 1, "r": 1}}
    assert parse(_document(spot_advisor={"us-west-2": {"Linux": types}, "eu-west-1": None})) == {("us-west-2", "g5.xlarge"): 11}


@pytest.mark.parametrize("document", [[], {}, _document(ranges=None), _document(spot_advisor=[]), _document(spot_advisor={}), _document(ranges=[])])
def test_a_file_that_is_something_else_is_said_to_be(document: object, tmp_path: Path) -> None:
    """With the key and what to do."""
    (tmp_path / "data.json").write_text(json.dumps(document))
    with pytest.raises(Misconfigured, match=r"spot_advisor: .*data\.json is not .*leave the key out"):
        read_bands(str(tmp_path / "data.json"))


@pytest.mark.parametrize(
    ("source", "says"),
    [("/no/such/file", "put the file there"), ("http://example.com/x", "neither a file nor an https"), ("ftp://example.com/x", "neither a file")],
)
def test_a_source_that_cannot_be_read_is_told(source: str, says: str) -> None:
    """Nothing but https is fetched from elsewhere."""
    with pytest.raises(ProviderError, match=says):
        read_bands(source)


def test_no_secret_of_an_address_gets_into_an_error() -> None:
    """Neither a password nor a signature."""
    for source in ("ftp://me:secret@example.com/x?signature=secret", "http://127.0.0.1:9/x?signature=secret"):
        with pytest.raises(ProviderError) as refused:
            read_bands(source)
        assert "secret" not in str(refused.value)


def test_the_data_is_fetched_from_an_address() -> None:
    """Over HTTP on this host here; elsewhere only https is taken."""
    with TCPServer(("127.0.0.1", 0), _Answering) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert read_bands(f"http://127.0.0.1:{server.server_address[1]}/data.json")["us-west-2", "g5.xlarge"] == 5


def test_an_address_that_does_not_answer_is_tried_again() -> None:
    """The class of the failure only; the error is one of the loop's."""
    with pytest.raises(ProviderError, match="did not answer"):
        read_bands("http://127.0.0.1:9/data.json")


def test_the_file_is_read_once_a_day_and_kept_when_it_goes(tmp_path: Path) -> None:
    """The data changes once a month; what is known stays known, and why it is not renewed is told."""
    file, time = tmp_path / "data.json", [NOW]
    file.write_text(json.dumps(_document()))
    advisor = Advisor(str(file), lambda: time[0])
    assert advisor.percent("us-west-2", "g5.xlarge") is None
    advisor.refresh()
    assert (advisor.percent("us-west-2", "g5.xlarge"), advisor.due) == (5, False)
    file.unlink()
    time[0] += timedelta(days=1)
    assert advisor.due
    advisor.refresh()
    assert (advisor.percent("us-west-2", "g5.xlarge"), advisor.due) == (5, False)
    assert isinstance(advisor.problem(), Misconfigured)


def test_without_a_source_nothing_is_known_or_wrong() -> None:
    """The key is optional."""
    advisor = Advisor(None, lambda: NOW)
    advisor.refresh()
    assert (advisor.due, advisor.percent("us-west-2", "g5.xlarge"), advisor.problem()) == (False, None, None)


# Scores


def test_the_set_of_questions_is_fixed() -> None:
    """The same regions give the same questions, in whatever order they come: new ones are rationed (facts/cloud-api.md §1.4)."""
    pool = ["g6.xlarge", "g5.xlarge", "g4dn.xlarge"]
    found = list(questions([pool], ["us-west-2", "us-east-1", "eu-west-1"]))
    assert found == list(questions([pool[::-1]], ["eu-west-1", "us-west-2", "us-east-1", "us-west-2"]))
    types = ("g4dn.xlarge", "g5.xlarge", "g6.xlarge")
    assert found == [Question(types, ("eu-west-1", "us-east-1")), Question(types, ("us-west-2",))]


def test_scores_are_from_1_to_10_and_of_zones() -> None:
    """A row of a region, of no score or of 0 says nothing."""
    rows: list[dict[str, Any]] = [
        {"Region": "us-west-2", "AvailabilityZoneId": "usw2-az1", "Score": 9},
        {"Region": "us-west-2", "AvailabilityZoneId": "usw2-az2", "Score": 0},
        {"Region": "us-west-2", "AvailabilityZoneId": "usw2-az3", "Score": "7"},
        {"Region": "us-west-2", "Score": 3},
        {"AvailabilityZoneId": "usw2-az4", "Score": 3},
    ]
    assert by_zone(rows) == {("us-west-2", "usw2-az1"): 9}
