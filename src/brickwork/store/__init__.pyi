from brickwork.store.config import Config as Config
from brickwork.store.config import read_config as read_config
from brickwork.store.folder import load as load
from brickwork.store.folder import save as save
from brickwork.store.hub import from_pretrained as from_pretrained
from brickwork.store.hub import push_to_hub as push_to_hub
from brickwork.store.weights import load_weights as load_weights
from brickwork.store.weights import state_hash as state_hash
