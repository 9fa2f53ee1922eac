"""Fits with settings that nobody should touch and that have no parameter.

Papers and other libraries have them: no momentum, the last iterate, another constant entry, a noise
multiplier beside public rows. They are set on the plan of a fit, which its parameters make.
"""

from dataclasses import replace


def fitted_with(model, X, y, *, bias=None, noise_multiplier=None, public=None, **descent):
    """`model`, fitted with a constant entry, a noise multiplier and settings of its descent.

    `public` has the arguments of ``fit`` for public rows.
    """
    plan = model._plan()
    plan = replace(plan, descent=replace(plan.descent, **descent))
    if bias is not None:
        row_map = replace(plan.bounds.row_map, bias=bias)
        plan = replace(plan, bounds=replace(plan.bounds, row_map=row_map))
    if noise_multiplier is not None:
        target = replace(plan.target, epsilon=None, noise_multiplier=noise_multiplier)
        plan = replace(plan, target=target)
    return model._fit_by(plan, X, y, **(public or {}))
