"""The command line's API: JSON over HTTP on a Unix socket, where the kernel says who calls.

Nothing is changed by a request that is answered with 4xx. Errors are `{"error": {"code", "message", "hint", "file", "line", "key", …}}`, the last
four where they are about a file. Every answer about money or prices carries `speeds`: the providers whose market runs faster than the clock.
"""

from __future__ import annotations

from aiohttp import web

from spotd.daemon import control_jobs, control_logs, control_market, control_submit, workdirs
from spotd.daemon.control import CONTROL, Control
from spotd.daemon.control_errors import errors_as_json
from spotd.daemon.control_request import BODY_LIMIT

__all__ = ["Control", "control_runner", "make_control_app"]


def make_control_app(control: Control) -> web.Application:
    """The application; what it does is all in `control`."""
    app = web.Application(middlewares=[errors_as_json], client_max_size=BODY_LIMIT)
    app[CONTROL] = control
    app.add_routes(
        [
            web.get("/v1/status", control_market.status),
            web.post("/v1/jobs", control_submit.submit),
            web.get("/v1/jobs", control_jobs.jobs),
            web.get("/v1/jobs/{ref}", control_jobs.show),
            web.post("/v1/jobs/{ref}/cancel", control_jobs.cancel),
            web.get("/v1/jobs/{ref}/explain", control_jobs.explain),
            web.get("/v1/jobs/{ref}/logs", control_logs.logs),
            web.get("/v1/offers", control_market.offers),
            web.get("/v1/prices", control_market.prices),
            web.get("/v1/savings", control_market.savings),
            web.get("/v1/events", control_market.events),
            web.get("/v1/policies", control_market.policies),
            web.post("/v1/policies/check", control_market.check_policy),
            web.get("/v1/workdirs/{sha256}", workdirs.look),
            web.put("/v1/workdirs/{sha256}", workdirs.put),
        ]
    )
    app.on_shutdown.append(_let_go)
    return app


def control_runner(app: web.Application) -> web.AppRunner:
    """How the application is to be run: no access log, no unpacking of compressed bodies, and a stop that waits for nobody for long."""
    return web.AppRunner(app, access_log=None, auto_decompress=False, keepalive_timeout=75.0, shutdown_timeout=5.0)


async def _let_go(app: web.Application) -> None:
    """Whoever follows logs or events is answered to the end, instead of holding the daemon up."""
    app[CONTROL].closing.set()
