"""
A report for the data protection officer
========================================

An honest private pipeline and its report: ranges of the columns are estimated privately, the labels
are given, and all steps are private. The page says what was promised, to whom, and what was not,
and leaves open what only the curator knows. The hospital is made up.

The first command prints the report, and the second one made the page of the documentation::

    python examples/write_privacy_report.py
    python examples/write_privacy_report.py docs/example_report.html
"""

import sys

from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline

from dpsubspace import BoundedScaler, DPSGDFClassifier, privacy_report

# Two epsilons of two steps: together they cost less than their sum.
X, y = load_breast_cancer(return_X_y=True)
model = make_pipeline(
    BoundedScaler(epsilon=0.5, delta=1e-5),
    DPSGDFClassifier(epsilon=1.0, delta=1e-5, classes=[0, 1]),
)
model.fit(X, y)

report = privacy_report(
    model,
    curator="Example Hospital, research office (made up)",
    use="to estimate whether a biopsy is malignant, in teaching",
    product="breast biopsy classifier, version 1",
    data_source="569 biopsies of the public Wisconsin table, as if they were private",
    data_domain="any table of biopsies with these 30 columns, one row a patient",
    preprocessing="none; no parameter was chosen by looking at the rows",
    date="2026-11-22",
)
print(report)

if len(sys.argv) > 1:
    report.to_html(sys.argv[1])
    print("\npage saved")
