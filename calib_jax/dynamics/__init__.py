"""Training dynamics: AUM and data maps, one number per example, kept on the device.

An integer label outside 0 ... K-1 makes its example's statistics NaN. A state keeps its dtype.
"""

from calib_jax.dynamics._dynamics import AumState as AumState
from calib_jax.dynamics._dynamics import DataMap as DataMap
from calib_jax.dynamics._dynamics import DataMapState as DataMapState
from calib_jax.dynamics._dynamics import aum_init as aum_init
from calib_jax.dynamics._dynamics import aum_update as aum_update
from calib_jax.dynamics._dynamics import aum_values as aum_values
from calib_jax.dynamics._dynamics import datamap_init as datamap_init
from calib_jax.dynamics._dynamics import datamap_update as datamap_update
from calib_jax.dynamics._dynamics import datamap_values as datamap_values
from calib_jax.dynamics._dynamics import margin as margin
from calib_jax.dynamics._dynamics import median_split as median_split
