"""A run on many devices as discrete events: samplers, verifiers, learner and weight transfer."""

from groupwise.simulation.costs import Costs as Costs
from groupwise.simulation.costs import Phases as Phases
from groupwise.simulation.costs import recorded_phases as recorded_phases
from groupwise.simulation.events import Layout as Layout
from groupwise.simulation.events import Outcome as Outcome
from groupwise.simulation.events import calibrated as calibrated
from groupwise.simulation.events import simulate as simulate
from groupwise.simulation.lengths import lognormal as lognormal
from groupwise.simulation.lengths import recorded_lengths as recorded_lengths
from groupwise.simulation.sweep import TOTALS as TOTALS
from groupwise.simulation.sweep import WORTH as WORTH
from groupwise.simulation.sweep import Sweep as Sweep
from groupwise.simulation.sweep import sweep as sweep
