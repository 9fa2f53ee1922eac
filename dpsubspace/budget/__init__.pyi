"""Type checkers read the public names here."""

from dpsubspace._accounting.guarantee import PrivacyGuarantee as PrivacyGuarantee
from dpsubspace._workflow.budget_display import BudgetDisplay as BudgetDisplay
from dpsubspace._workflow.journal import LedgerEntry as LedgerEntry
from dpsubspace._workflow.ledger import PrivacyLedger as PrivacyLedger
from dpsubspace._workflow.planner import (
    privacy_cost as privacy_cost,
    privacy_event as privacy_event,
    share_budget as share_budget,
)
