from brickwork.pools.encoding import encode as encode
from brickwork.pools.folder import PoolFolder as PoolFolder
from brickwork.pools.growth import Growth as Growth
from brickwork.pools.learning import learn as learn
from brickwork.pools.pool import KernelPool as KernelPool
from brickwork.pools.starts import rank_starts as rank_starts
from brickwork.pools.task import Task as Task
