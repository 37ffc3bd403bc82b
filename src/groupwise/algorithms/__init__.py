"""Pure tensor maths of every method: parts, presets and the written formula of each."""

from groupwise.algorithms import catalogue as catalogue
from groupwise.algorithms.algorithm import Algorithm as Algorithm
from groupwise.algorithms.contracts import Filtered as Filtered
from groupwise.algorithms.contracts import LossOutput as LossOutput
from groupwise.algorithms.contracts import LossTerms as LossTerms
from groupwise.algorithms.contracts import MetricSums as MetricSums
from groupwise.algorithms.contracts import Needs as Needs
from groupwise.algorithms.contracts import UpdatePlan as UpdatePlan
from groupwise.algorithms.describe import Description as Description
from groupwise.algorithms.describe import describe as describe
from groupwise.algorithms.describe import label as label
from groupwise.algorithms.parts import PARTS as PARTS
from groupwise.algorithms.parts import Part as Part
from groupwise.algorithms.parts import part as part
from groupwise.algorithms.presets import PRESETS as PRESETS
from groupwise.algorithms.presets import Preset as Preset
from groupwise.algorithms.presets import algorithm_from_table as algorithm_from_table
from groupwise.algorithms.presets import override as override
from groupwise.algorithms.presets import preset as preset
from groupwise.algorithms.state import AlgorithmState as AlgorithmState
