"""Pipelines: stages that run one after the other from one file, each a run folder of its own."""

from groupwise.stages.fitting import fit as fit
from groupwise.stages.kinds import KINDS as KINDS
from groupwise.stages.objective import FittingSettings as FittingSettings
from groupwise.stages.objective import Objective as Objective
from groupwise.stages.recipe import Pipeline as Pipeline
from groupwise.stages.recipe import is_pipeline as is_pipeline
from groupwise.stages.recipe import load_pipeline as load_pipeline
from groupwise.stages.recipe import stage_fields as stage_fields
from groupwise.stages.runner import check_pipeline as check_pipeline
from groupwise.stages.runner import train as train
from groupwise.stages.stage import CheckContext as CheckContext
from groupwise.stages.stage import Stage as Stage
from groupwise.stages.stage import StageContext as StageContext
from groupwise.stages.stage import StageResult as StageResult
