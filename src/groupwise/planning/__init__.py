"""Memory, tokens and counts before the run. No torch: a plan is arithmetic on a configuration."""

from groupwise.planning.compare import Comparison as Comparison
from groupwise.planning.estimate import Estimate as Estimate
from groupwise.planning.estimate import estimate as estimate
from groupwise.planning.hardware import GPUS as GPUS
from groupwise.planning.hardware import Hardware as Hardware
from groupwise.planning.hardware import StepTime as StepTime
from groupwise.planning.hardware import gpu_named as gpu_named
from groupwise.planning.hardware import step_time as step_time
from groupwise.planning.memory import Fit as Fit
from groupwise.planning.memory import MemoryInputs as MemoryInputs
from groupwise.planning.memory import MemoryPlan as MemoryPlan
from groupwise.planning.memory import fit_learning as fit_learning
from groupwise.planning.methods import Method as Method
from groupwise.planning.methods import adapter_parameters as adapter_parameters
from groupwise.planning.methods import methods as methods
from groupwise.planning.render import size_text as size_text
from groupwise.planning.run_plan import Plan as Plan
from groupwise.planning.run_plan import PlanInputs as PlanInputs
from groupwise.planning.run_plan import no_signal_share as no_signal_share
from groupwise.planning.run_plan import plan as plan
from groupwise.planning.run_plan import refill_factor as refill_factor
from groupwise.planning.shape import SMOLLM2_135M as SMOLLM2_135M
from groupwise.planning.shape import ModelShape as ModelShape
from groupwise.planning.shape import shape_from_config as shape_from_config
from groupwise.planning.shape import shape_of_size as shape_of_size
