"""Type checkers read the public names here."""

from dpsubspace._estimators.choice import (
    PublicChoice as PublicChoice,
    select_public as select_public,
)
from dpsubspace._estimators.diagnostics import (
    ProjectionError as ProjectionError,
    private_projection_error as private_projection_error,
)
from dpsubspace._estimators.distances import (
    optimal_transport_distance as optimal_transport_distance,
    task2vec_distance as task2vec_distance,
)
from dpsubspace._estimators.gsd import (
    GSDScorer as GSDScorer,
    SubspaceDistance as SubspaceDistance,
    gradient_subspace_distance as gradient_subspace_distance,
)
from dpsubspace._public.subspace import subspace_distance as subspace_distance
from dpsubspace._workflow.projection_display import ProjectionErrorDisplay as ProjectionErrorDisplay
from dpsubspace._workflow.ranking import GSDRankingDisplay as GSDRankingDisplay
