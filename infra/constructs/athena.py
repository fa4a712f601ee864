"""The outcome rows as a table for Athena: one Glue database, one table, partitions by projection, nothing to maintain.

A partition is one job. Beside its outcome objects lie request and raw files, whose lines have none of the columns: a
query therefore asks for `"$path" LIKE '%/outcomes.jsonl.zst'` (README, "What it costs", has one). Athena reads zstd by
the objects' ending (Athena user guide, "Use compression in Athena").
"""

from __future__ import annotations

from typing import Final

from aws_cdk import Fn, Stack
from aws_cdk import aws_glue as glue
from constructs import Construct

TABLE: Final = "outcomes"
COLUMNS: Final = (
    ("record_id", "string"),
    ("record_key", "string"),
    ("business_key", "string"),
    ("shard_id", "string"),
    ("attempt", "int"),
    ("tries", "int"),
    ("outcome", "string"),
    ("code", "string"),
    ("reason", "string"),
    ("notes", "array<string>"),
    ("provider", "string"),
    ("provider_job_id", "string"),
    ("provider_request_id", "string"),
    ("model", "string"),
    ("model_version", "string"),
    ("finish_reason", "string"),
    ("usage", "struct<input:bigint,cached_input:bigint,output:bigint,reasoning:bigint,cache_write:bigint>"),
    ("cost_nano_usd", "bigint"),
    ("price", "string"),
    ("raw", "struct<uri:string,offset:bigint,length:bigint,sha256:string>"),
    ("reused_from", "string"),
)
"""Fields of `tallybatch.domain.outcomes.Outcome` and their types; the answer itself is not among them."""
PARTITIONS: Final = ("tenant", "job_key")
_SERDE: Final = "org.openx.data.jsonserde.JsonSerDe"


class CostTables(Construct):
    """`database` is named after the stack; a query must name tenant and job (projection type `injected`)."""

    def __init__(self, scope: Construct, construct_id: str, *, bucket_name: str) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        self.database = glue.CfnDatabase(
            self,
            "Database",
            catalog_id=stack.account,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=stack.stack_name.lower().replace("-", "_"), description="Tallybatch: every record, every attempt"
            ),
        )
        root = Fn.join("", ["s3://", bucket_name, "/jobs/"])
        template = Fn.join("", [root, "${tenant}/${job_key}/attempts/"])
        self.table = glue.CfnTable(
            self,
            "Outcomes",
            catalog_id=stack.account,
            database_name=self.database.ref,
            table_input=glue.CfnTable.TableInputProperty(
                name=TABLE,
                description="One row per record and attempt; see the README's section on costs for a query",
                table_type="EXTERNAL_TABLE",
                parameters={
                    "classification": "json",
                    "projection.enabled": "true",
                    **{f"projection.{name}.type": "injected" for name in PARTITIONS},
                    "storage.location.template": template,
                },
                partition_keys=[glue.CfnTable.ColumnProperty(name=name, type="string") for name in PARTITIONS],
                storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                    location=root,
                    input_format="org.apache.hadoop.mapred.TextInputFormat",
                    output_format="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
                    columns=[glue.CfnTable.ColumnProperty(name=name, type=kind) for name, kind in COLUMNS],
                    serde_info=glue.CfnTable.SerdeInfoProperty(
                        serialization_library=_SERDE, parameters={"ignore.malformed.json": "true"}
                    ),
                ),
            ),
        )
