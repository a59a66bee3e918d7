"""What all runs of an experiment share: its data, its network and its workdir."""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Sequence

from calib_jax import train
from calib_jax.evaluation import check_calibrators
from calib_jax.experiment import _build, _workdir
from calib_jax.experiment._custom import Custom, identify
from calib_jax.experiment._keys import Config
from calib_jax.experiment._recipe import planned_trainers
from calib_jax.experiment._validate import check_network, missing_classes

Lock = Callable[..., contextlib.AbstractContextManager[None]]


class Experiment:
    """What all runs of an experiment share.

    Args:
      config: Config of the experiment.
      workdir: Folder of the experiment.
      custom: Objects in place of the config's.
      log: Function that is called with lines for the user.
      should_stop: Function that returns whether a signal asked to stop.
      lock: Function that locks a folder, as `_workdir.locked`.
    """

    def __init__(
        self,
        config: Config,
        workdir: pathlib.Path,
        custom: Custom,
        log: Callable[[str], None],
        should_stop: Callable[[], bool],
        lock: Lock,
    ) -> None:
        self.config, self.workdir, self.custom, self.log = config, workdir, custom, log
        self.should_stop, self.lock = should_stop, lock
        self.is_started = _workdir.is_started(workdir)
        # Trainers of first phases that were built to see whether they can be.
        self.built: dict[tuple[str, str], train.Trainer] = {}

    @functools.cached_property
    def sets(self) -> _build.Data:
        """Load the data when first needed, as runs that are finished need none."""
        sets = _build.load_data(self._pinned, self.custom)
        check_calibrators(self.config.calibrate, sets.train.num_classes)
        for dataset in sets.all():
            for note in dataset.notes:
                self.log(f"{dataset.name} {dataset.split}: {note}")
        for dataset in (sets.train, sets.val, sets.test):
            if warning := missing_classes(dataset):
                self.log(f"{dataset.name} {dataset.split}: {warning}")
        if self.is_started:
            _workdir.check_content(self.workdir, self.custom.content(sets.by_name()))
        return sets

    @functools.cached_property
    def network(self) -> train.Network:
        """Build the network, which is the same for all methods and variants."""
        return _build.build_network(self._pinned, self.sets, self.custom)

    @functools.cached_property
    def _pinned(self) -> Config:
        """Return the config with the revisions of the Hub that the workdir was begun with."""
        if not self.is_started:
            return self.config
        return _build.pin_revisions(self.config, _workdir.read_identity(self.workdir))

    def claim_workdir(self, names: Sequence[str], *, alone: bool) -> None:
        """Write the config into the workdir, or check that it is the same.

        A new config is written only after everything could be built: data, network, optimizers and the
        trainers of all phases.

        Args:
          names: Methods and variants to run, each after its teacher.
          alone: Whether no other process may be at work in the workdir, so that one that has no
            checkpoint yet can be claimed again.
        """
        identity = None
        if not self.is_started or self.custom.data or self.custom.network is not None:
            params = check_network(self.network, self.sets.all())
            identity = identify(self.config, self.custom, self.sets.by_name(), self.network, params)
        if not self.is_started:
            self._build_trainers(names)
        with self.lock(self.workdir, ".turn"):
            if train.is_primary():
                replace = alone and not self.is_started
                kinds = self.custom.kinds()
                _workdir.claim(self.workdir, self.config, identity, kinds, replace=replace)
            train.barrier("the workdir is claimed")

    def _build_trainers(self, names: Sequence[str]) -> None:
        planned = planned_trainers(self.config, self.sets, names, self.network, self.custom)
        for phase, trainer in planned:
            if not phase.needs:
                self.built[phase.owner, phase.name] = trainer
