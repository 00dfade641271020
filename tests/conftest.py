"""For all tests: machines are shared and noisy, so no example of a property may fail for having been slow."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("brokerweave", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("brokerweave")
