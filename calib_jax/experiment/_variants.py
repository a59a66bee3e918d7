"""Variants: rows of a comparison that differ from the config in a method's options or in training."""

import ast
import contextlib
import copy
import re
from collections.abc import Iterable, Mapping, Sequence

from ml_collections import ConfigDict

from calib_jax import methods
from calib_jax._hints import expected_one_of
from calib_jax.experiment._keys import Config, JsonDict, Value

# Sections of the config that a variant may change; `method`: options of the objective it trains with.
_SECTIONS = ("method", "optimizer", "train")
# Commas separate settings, but for those in brackets or quotes.
_SETTING = re.compile(r"""(?:[^,(\['"]|\([^)]*\)|\[[^\]]*\]|'[^']*'|"[^"]*")+""")


def run_config(config: Config, name: str) -> tuple[str, Config]:
    """Return what a row of the comparison is trained with.

    Args:
      config: Config of the experiment.
      name: Name of a method or variant. A method may have an entry among the variants, too.

    Returns:
      The name of the method, and the config with the variant's settings merged into it.

    Raises:
      ValueError: If a setting does not exist, or has another type.
    """
    if name not in config.method.variants:
        return name, config
    where = f"config.method.variants.{name}"
    settings = config.method.variants[name]
    if not isinstance(settings, ConfigDict):
        raise ValueError(f"{where}={settings!r}: expected settings such as {{'of': 'focal'}}")
    settings = settings.to_dict()
    if (name in methods.NAMES and "of" in settings) or not name.isidentifier():
        raise ValueError(f"{where}: expected a name that no method has, letters, digits and _")
    method = settings.pop("of", name)
    if method not in methods.NAMES:
        raise ValueError(f"{where}.of={method!r}: {expected_one_of(method, methods.NAMES)}")
    merged = copy.deepcopy(config)
    for section in _SECTIONS:
        changes = settings.pop(section, {})
        allowed = methods.OBJECTIVES if section == "method" else config[section]
        _update(merged[section], changes, f"{where}.{section}", allowed)
    _update(merged.method[method], settings, where, (*config.method[method], *_SECTIONS))
    return method, merged


def _update(section: Config, changes: Value, where: str, allowed: Iterable[str]) -> None:
    """Change keys of a section of a config, of which only those in `allowed` may be changed."""
    if not isinstance(changes, Mapping):
        raise ValueError(f"{where}={changes!r}: expected settings of {', '.join(allowed)}")
    for key, value in changes.items():
        if key not in allowed:
            raise ValueError(f"{where}.{key}: {expected_one_of(key, allowed)}")
        before = section.get(key)
        if isinstance(before, ConfigDict):
            _update(before, value, f"{where}.{key}", before)
            continue
        try:
            section[key] = value
        except TypeError:
            kind = type(before).__name__
            raise ValueError(
                f"{where}.{key}={value!r}: expected {kind}, such as {before!r}"
            ) from None


def add_variants(config: Config, texts: Sequence[str]) -> None:
    """Add variants as they are written on the command line to a config, and to its `method.name`.

    Args:
      config: Config that is changed.
      texts: Variants `NAME=METHOD,KEY=VALUE,…`, such as `'ada_10=adafocal,num_bins=10,train.epochs=5'`.

    Raises:
      ValueError: If a text has another form, a name is taken, or a setting does not exist.
    """
    for text in texts:
        name, _, rest = text.partition("=")
        method, *settings = (text.strip() for text in _SETTING.findall(rest) or [""])
        if not method or "=" in method or not all("=" in setting for setting in settings):
            raise ValueError(f"--variant {text}: expected NAME=METHOD,KEY=VALUE,KEY=VALUE,…")
        if name in config.method.variants:
            raise ValueError(
                f"--variant {text}: the config has a variant {name!r}; change it by "
                f"--config.method.variants.{name}.KEY=VALUE"
            )
        variant: JsonDict = {"of": method}
        for setting in settings:
            path, _, value = setting.partition("=")
            *sections, key = path.split(".")
            inner = variant
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[key] = parse_value(value)
        config.method.variants[name] = variant
        run_config(config, name)
        named = [n.strip() for n in config.method.name.split(",")]
        if name not in named:
            config.method.name = ",".join([*named, name])


def parse_value(text: str) -> Value:
    """Return the number, truth value or tuple that a text is, else the text itself."""
    for parse in (ast.literal_eval, float):
        with contextlib.suppress(ValueError, SyntaxError):
            return parse(text)
    return text
