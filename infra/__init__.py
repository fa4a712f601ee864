"""The AWS side: one CDK stack, and the embedded default that runs the same stack on one machine.

Importing anything below this package points jsii at the Node that came with the wheels, before `aws_cdk` is loaded.
"""

from infra.node import use_packaged_node

use_packaged_node()
