"""Language models: prompts about a data set, a client, and the evaluation of the answers."""

from calib_jax.llm._answers import Answer as Answer
from calib_jax.llm._answers import parse_answer as parse_answer
from calib_jax.llm._answers import parse_answer_leniently as parse_answer_leniently
from calib_jax.llm._client import ChatClient as ChatClient
from calib_jax.llm._client import NoAnswerError as NoAnswerError
from calib_jax.llm._client import RefusedError as RefusedError
from calib_jax.llm._client import Reply as Reply
from calib_jax.llm._client import UnreachableError as UnreachableError
from calib_jax.llm._client import read_key as read_key
from calib_jax.llm._evaluate import AnswerEvaluation as AnswerEvaluation
from calib_jax.llm._evaluate import evaluate_answers as evaluate_answers
from calib_jax.llm._plan import PromptPlan as PromptPlan
from calib_jax.llm._plan import describe as describe
from calib_jax.llm._plan import plan_prompts as plan_prompts
from calib_jax.llm._prompts import Settings as Settings
from calib_jax.llm._run import run as run
from calib_jax.llm._template import read_template as read_template
