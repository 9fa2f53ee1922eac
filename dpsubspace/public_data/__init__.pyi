"""Type checkers read the public names here."""

from dpsubspace.public_data._choice import (
    PublicChoice as PublicChoice,
    select_public as select_public,
)
from dpsubspace.public_data._diagnostics import (
    ProjectionError as ProjectionError,
    private_projection_error as private_projection_error,
)
from dpsubspace.public_data._distances import (
    optimal_transport_distance as optimal_transport_distance,
    task2vec_distance as task2vec_distance,
)
from dpsubspace.public_data._gsd import (
    GSDScorer as GSDScorer,
    SubspaceDistance as SubspaceDistance,
    gradient_subspace_distance as gradient_subspace_distance,
)
from dpsubspace._core.public.subspace import subspace_distance as subspace_distance
from dpsubspace.public_data._projection_display import (
    ProjectionErrorDisplay as ProjectionErrorDisplay,
)
from dpsubspace.public_data._ranking import GSDRankingDisplay as GSDRankingDisplay
