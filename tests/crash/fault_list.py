"""Every fault that a provider is known for, and where a job must end that meets it.

The scenarios are the simulator's; `../support/fault_run.py` runs them and adds what must hold after any fault.
"""

from __future__ import annotations

from tests.crash.fault_list_jobs import FILES, STATES, VALIDATION
from tests.crash.fault_list_records import LINES, RECORD
from tests.crash.fault_list_submit import CREATE, QUOTA

FAULTS = (*CREATE, *QUOTA, *VALIDATION, *STATES, *FILES, *RECORD, *LINES)
