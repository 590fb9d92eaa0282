"""The records that every other room speaks: immutable, validated, one list of fields each.

Columns of exports, the reference page of the documentation and the JSON in the run folder all derive from these
types. Units live in names (`decode_ms`, `size_bytes`); times of day are seconds since the epoch (UTC).
"""

from __future__ import annotations

from specmeter.record.asked import (
    Address,
    Arm,
    EngineSettings,
    FlashAttention,
    Generation,
    KvType,
    Load,
    Message,
    Network,
    PolicyName,
    ProbeSetting,
    Prompt,
    RefusedDraft,
    RuleName,
    Slo,
    network_of,
)
from specmeter.record.base import Record
from specmeter.record.derived import (
    Estimate,
    ExpertUnion,
    Margin,
    MatchProfile,
    Prediction,
    Profiled,
    PromptTokens,
    StepProbe,
    StepRound,
    TextRouting,
    UnionPoint,
)
from specmeter.record.identity import Condition, DraftPair, EngineIdentity, ModelHeader, ModelIdentity
from specmeter.record.judged import Certificate, CheckOutcome, Finding, Severity, Standing, Unchecked, Verdict
from specmeter.record.load import BatchPoint, LoadCell, Sending
from specmeter.record.machine import Gpu, GpuSample, Host, PowerMeter, RequestEnergy, Telemetry
from specmeter.record.measured import DeviceUse, Drafting, Reply, Request, Session, Step, Timings, WarmUp
from specmeter.record.traits import PARAMETERS, PLAIN, TRUTHS, EngineTraits, MethodName, MethodTraits, Truth

__all__ = [
    "PARAMETERS",
    "PLAIN",
    "TRUTHS",
    "Address",
    "Arm",
    "BatchPoint",
    "Certificate",
    "CheckOutcome",
    "Condition",
    "DeviceUse",
    "DraftPair",
    "Drafting",
    "EngineIdentity",
    "EngineSettings",
    "EngineTraits",
    "Estimate",
    "ExpertUnion",
    "Finding",
    "FlashAttention",
    "Generation",
    "Gpu",
    "GpuSample",
    "Host",
    "KvType",
    "Load",
    "LoadCell",
    "Margin",
    "MatchProfile",
    "Message",
    "MethodName",
    "MethodTraits",
    "ModelHeader",
    "ModelIdentity",
    "Network",
    "PolicyName",
    "PowerMeter",
    "Prediction",
    "ProbeSetting",
    "Profiled",
    "Prompt",
    "PromptTokens",
    "Record",
    "RefusedDraft",
    "Reply",
    "Request",
    "RequestEnergy",
    "RuleName",
    "Sending",
    "Session",
    "Severity",
    "Slo",
    "Standing",
    "Step",
    "StepProbe",
    "StepRound",
    "Telemetry",
    "TextRouting",
    "Timings",
    "Truth",
    "Unchecked",
    "UnionPoint",
    "Verdict",
    "WarmUp",
    "network_of",
]
