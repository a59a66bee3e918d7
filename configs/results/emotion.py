"""Parts of ISEAR and GoEmotions: Sim-MixUp and calibrated self-distillation on two cores.

    python -m calib_jax.main --config configs/results/emotion.py:isear --workdir runs/results_isear

After the colon: isear (and Emotion-Stimulus out of domain; three seeds) or goemotions (and
DailyDialog; one seed, fewer rows). Differences from configs/emotion/: a RoBERTa of 30 million
parameters (six layers, 384 wide) in models/roberta-30m, 800 random training texts, at most 800 of
each other set, their first 48 tokens, four epochs of batches of 16, a rate of 1e-4, no fine-tuning
out of domain. Results: docs/results.md.
"""

from calib_jax import experiment

# The arguments after the colon, and the shifted set of each.
NETWORKS = {"isear": "emotion_stimulus", "goemotions": "dailydialog"}


def get_config(data="isear"):
    if data not in NETWORKS:
        raise ValueError(f"data {data!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1, 2) if data == "isear" else (0,)
    config.data.name = data
    config.data.num_train = 800
    config.data.num_eval = 800
    config.data.max_length = 48
    config.data.shift = (NETWORKS[data],)
    config.model.name = "roberta"
    config.model.pretrained = "models/roberta-30m"
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 1e-4
    config.optimizer.weight_decay = 0.001
    config.optimizer.clip_norm = 3.0
    config.train.batch_size = 16
    config.train.eval_batch_size = 50
    config.train.epochs = 4
    config.checkpoint.keep = False
    config.calibrate = ("temperature_ece", "temperature")
    config.method.name = "cross_entropy,csd,sim_mixup_csd"
    if data == "isear":
        config.method.name = "cross_entropy,rand_mixup,ea_mixup_100,sim_mixup,sd,csd,sim_mixup_csd"
    config.method.variants = {
        "rand_mixup": {"of": "mixup", "place": "features", "alpha": 5.0},
        "ea_mixup_100": {"of": "ea_mixup", "share": 0.5},
        "sim_mixup_csd": {"of": "csd", "teacher": "sim_mixup"},
    }
    return config
