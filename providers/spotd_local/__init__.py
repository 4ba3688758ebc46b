"""The local provider: instances are process trees on this machine, with real metadata servers and real reclaims."""
