"""Checkpoints: files that are whole or not there, and the states that are in them."""

from groupwise.checkpoints.files import Checkpoint as Checkpoint
from groupwise.checkpoints.files import CheckpointWarning as CheckpointWarning
from groupwise.checkpoints.files import best_checkpoints as best_checkpoints
from groupwise.checkpoints.files import checkpoint_steps as checkpoint_steps
from groupwise.checkpoints.files import clean_leftovers as clean_leftovers
from groupwise.checkpoints.files import damage as damage
from groupwise.checkpoints.files import is_complete as is_complete
from groupwise.checkpoints.files import load_checkpoint as load_checkpoint
from groupwise.checkpoints.files import newest_complete as newest_complete
from groupwise.checkpoints.files import prune as prune
from groupwise.checkpoints.files import run_of as run_of
from groupwise.checkpoints.files import save_checkpoint as save_checkpoint
from groupwise.checkpoints.states import restore_model as restore_model
from groupwise.checkpoints.states import restore_training_state as restore_training_state
from groupwise.checkpoints.states import training_state as training_state
