"""Auditing: a lower bound on epsilon from the behaviour of a fit, to hold beside its claim."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom
from sklearn.base import clone

from dpsubspace._inputs import check_integer, check_real

__all__ = ["AuditResult", "audit_epsilon", "one_run_audit"]
