"""Type checkers read the public names here."""

from dpsubspace._core.accounting.guarantee import PrivacyGuarantee as PrivacyGuarantee
from dpsubspace.reports._budget_display import BudgetDisplay as BudgetDisplay
from dpsubspace.budget._journal import LedgerEntry as LedgerEntry
from dpsubspace.budget._ledger import PrivacyLedger as PrivacyLedger
from dpsubspace.budget._planner import (
    privacy_cost as privacy_cost,
    privacy_event as privacy_event,
    share_budget as share_budget,
)
from dpsubspace.metrics._planned_accuracy import (
    AccuracyPlan as AccuracyPlan,
    plan_accuracy as plan_accuracy,
)
