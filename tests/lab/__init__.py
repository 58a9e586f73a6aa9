# SPDX-License-Identifier: Apache-2.0
"""Gateways, subscribers and cores made of namespaces, for the tests and the examples. Python's library alone."""

from .dialer import Dialer
from .gateway import Gateway, thing, yaml
from .home import Home, Line
from .laboratory import Lab
from .load import CoreHost, Load
from .namespace import Namespace
from .upf import Upf
from .wire import Wire

__all__ = ["CoreHost", "Dialer", "Gateway", "Home", "Lab", "Line", "Load", "Namespace", "Upf", "Wire", "thing", "yaml"]
