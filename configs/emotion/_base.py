"""Settings shared by the configs for Sim-MixUp and calibrated self-distillation (emotion detection).

The default methods of roberta are the rows of tables 1 to 4; electra is the row of LCL, in a separate
workdir. Tables 8 and 9 are --config.method.name=csd,csd_scaled,sim_mixup_csd,sim_mixup_csd_scaled.
Tables 11 and 12 are in the report as generations; the first generation is the teacher, which is also a
method. python -m calib_jax.llm produces the rows of language models. Methods that need a data map
share one recording phase per seed.

Published: AdamW, weight decay 0.001, clipping at 3, at most 3 epochs, 4 generations; Beta(5, 5) and
weights 0.8 / 0.1 / 0.1; the temperature of 0.01, 0.02, ..., 5 with the least ECE on validation;
fine-tuning on the shifted set for 4 epochs.
Our choice: RoBERTa's classification head, features mixed before its last layer; 3 epochs at a constant
rate and the last of them; the first 128 tokens; a batch is half easy and half ambiguous examples, each
half being the candidates of the other (config.method.sim_mixup.partners=bank: all examples of the other
group), so that an epoch of Sim-MixUp has as many updates as without mixup, and one of EA-M-MixUp, which
leaves out a third of the data, two thirds of them (config.method.sim_mixup.batch_split=each: a batch of
each group, and half as many updates, as in the code on which it builds); Rand-M-MixUp trains on
mixtures only, EA-M-MixUp and Sim-MixUp with 0.8 of the weight on examples that are not mixed;
fine-tuning at the same rate, with equal weight on mixtures and on the new examples; the best generation
by likelihood on validation. LCL with its authors' settings: 2e-5 with linear decay, weight decay 0.01,
clipping at 1, batch 10, 5 epochs.
"""

from calib_jax import experiment

NETWORKS = ("roberta", "electra")


def base_config(network, data, shift, learning_rate, batch_size):
    """Return what GoEmotions, EmpatheticDialogues and ISEAR share.

    Args:
      network: `"roberta"`, all methods but LCL; or `"electra"`, LCL.
      data: the name of the set.
      shift: the name of the set out of domain.
      learning_rate: RoBERTa's.
      batch_size: RoBERTa's.
    """
    if network not in NETWORKS:
        raise ValueError(f"network {network!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3, 4)
    config.data.name = data
    config.data.shift = (shift,)
    config.model.name = network
    config.optimizer.name = "adamw"
    config.calibrate = ("temperature_ece", "temperature")
    if network == "electra":
        config.method.name = "lcl"
        config.model.pretrained = "models/electra-base-discriminator"
        config.optimizer.learning_rate = 2e-5
        config.optimizer.schedule = "linear"
        config.optimizer.weight_decay = 0.01
        config.optimizer.clip_norm = 1.0
        config.train.batch_size = 10
        config.train.epochs = 5
        return config

    config.model.pretrained = "models/roberta-base"
    config.fine_tune.data = shift
    config.optimizer.learning_rate = learning_rate
    config.optimizer.weight_decay = 0.001
    config.optimizer.clip_norm = 3.0
    config.train.batch_size = batch_size
    config.train.epochs = 3
    config.checkpoint.keep = False  # there are many
    config.method.name = (
        "cross_entropy,rand_mixup,ea_mixup,ea_mixup_100,sim_mixup,sd_ea_mixup,csd_ea_mixup,sd,csd,"
        "rand_mixup_csd,ea_mixup_100_csd,sim_mixup_csd"
    )
    config.method.sim_mixup.batch_split = config.method.ea_mixup.batch_split = "halves"
    config.method.variants = {
        "rand_mixup": {"of": "mixup", "place": "features", "alpha": 5.0},
        "ea_mixup_100": {"of": "ea_mixup", "share": 0.5},
        # One student of a teacher that was trained with 66 % of the data.
        "sd_ea_mixup": {"of": "sd", "teacher": "ea_mixup", "generations": 2},
        "csd_ea_mixup": {"of": "csd", "teacher": "ea_mixup", "generations": 2},
        # Tables 3 and 4: other first teachers. The last one is the paper's method.
        "rand_mixup_csd": {"of": "csd", "teacher": "rand_mixup"},
        "ea_mixup_100_csd": {"of": "csd", "teacher": "ea_mixup_100"},
        "sim_mixup_csd": {"of": "csd", "teacher": "sim_mixup"},
        # Tables 8 and 9.
        "csd_scaled": {"of": "csd", "scale_student": True},
        "sim_mixup_csd_scaled": {"of": "csd", "teacher": "sim_mixup", "scale_student": True},
    }
    return config
