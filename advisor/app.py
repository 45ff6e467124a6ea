"""The composition root: rules, probes and stores meet the core here. No policy, no printing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from advisor.errors import HardwareError, ModelError, UsageError, WrongFileError
from advisor.excerpts import excerpt
from advisor.gguf_header.types import GgufHeader
from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EXTENSION_SCHEMA, EngineSpec, extend_engine, parse_engine
from advisor.memory.engine_spec import SCHEMA as ENGINE_SCHEMA
from advisor.model.arch_rule import SCHEMA as ARCH_SCHEMA
from advisor.model.arch_rule import ArchRule, parse_arch_rule
from advisor.model.describe import architecture_of, describe
from advisor.model.kinds import KIND_TEXT, drafting_of, kind_of
from advisor.model.spec import ModelSpec
from advisor.rule_folders import RuleFolders, shipped_folder
from advisor.rulebook import RuleDocument, check_document, check_sources

if TYPE_CHECKING:
    from advisor.hardware.gpu_table import GpuTable
    from advisor.memory.extras import Beside
    from advisor.quants.rules import QuantRules
    from advisor.settings import RequestedSettings

MAX_SNAPSHOT_BYTES = 2 << 20


def schema_of(name: str) -> Mapping[str, object]:
    """The schema that a rule document must follow. Raises UsageError for a name that no part of advisor reads."""
    if name.startswith("arch/"):
        return ARCH_SCHEMA
    if name.startswith("engines/"):
        return ENGINE_SCHEMA if name == "engines/llama_cpp.toml" else EXTENSION_SCHEMA
    if name == "policy.toml":
        from advisor.recommend.policy import SCHEMA as POLICY_SCHEMA

        return POLICY_SCHEMA
    if name == "speed.toml":
        from advisor.speed.rules import SCHEMA as SPEED_SCHEMA

        return SPEED_SCHEMA
    if name == "quants.toml":
        from advisor.quants.rules import SCHEMA as QUANTS_SCHEMA

        return QUANTS_SCHEMA
    raise UsageError(f"'{name}' is no rule file that advisor reads; 'advisor rules show' lists them.")


class App:
    """Loads what a command needs, when it needs it, once."""

    def __init__(self, rules_folder: str | None = None) -> None:
        self.rules = RuleFolders(rules_folder)
        self.calibration_problem: str | None = None  # why what was measured on this machine is not used, once probed

    def document(self, name: str) -> Mapping[str, Any] | None:
        """A rule document, checked when a folder of the user's has a say in it (ours are checked by the tests)."""
        document = self.rules.document(name)
        if document is None:
            return None
        if any(not path.startswith(shipped_folder()) for path in document.files):
            check(document)
        return document.data

    def required(self, name: str) -> Mapping[str, Any]:
        """A rule document that must be there."""
        document = self.document(name)
        if document is None:
            raise UsageError(f"the rule file {name} is missing from this installation; install gguf-advisor again.")
        return document

    def arch_rule(self, architecture: str) -> ArchRule:
        """The rule of an architecture; plain attention when there is none or the name is no file name."""
        safe = architecture.replace("-", "").replace("_", "").isalnum() and architecture.isascii()
        name = f"arch/{architecture}.toml"
        return parse_arch_rule(self.document(name) if safe and len(architecture) <= 64 else None, name)

    def engine(self, text: str | None) -> EngineSpec:
        """`NAME[@BUILD]`: llama.cpp (default), ollama, llama-cpp-python, koboldcpp; BUILD like b10434."""
        name, _, build_text = (text or "llama.cpp").partition("@")
        digits = build_text.removeprefix("b")
        if build_text and (not digits.isdecimal() or len(digits) > 9):
            raise UsageError(f"--engine '{excerpt(text)}': the build must be a number such as b11434.")
        build = int(digits) if digits else None
        base = self.required("engines/llama_cpp.toml")
        if name == base["name"]:
            return parse_engine(base, build)
        stem = name.replace("-", "_").replace(".", "_").lower()
        extension = self.document(f"engines/{stem}.toml") if stem.replace("_", "").isalnum() else None
        if extension is None or stem == "llama_cpp":
            stems = sorted(entry.rsplit("/", 1)[-1].removesuffix(".toml") for entry in self.rules.names("engines"))
            known = [base["name"] if entry == "llama_cpp" else entry.replace("_", "-") for entry in stems]
            raise UsageError(f"--engine '{excerpt(text)}' is unknown; choose one of {', '.join(known)}.")
        return extend_engine(base, extension, build)

    def header(self, model: str, most_bytes: int | None = None) -> GgufHeader:
        """The header of a MODEL argument. `most_bytes`: HeaderTooLargeError where it would keep more in memory."""
        from advisor.stores.resolve import load_header

        return load_header(model, most_bytes)

    def model(self, header: GgufHeader, *, load_mtp: bool = False, draft: bool = False) -> ModelSpec:
        """The model in a header. Raises ModelError when it is no language model; `draft` takes draft heads too."""
        if draft and kind_of(header) == "draft head":
            return describe(header, self.arch_rule(architecture_of(header)), draft=True)
        if kind_of(header) != "model":  # such files often name no architecture at all; describe says what they are
            return describe(header, parse_arch_rule(None, ""))
        return describe(header, self.arch_rule(architecture_of(header)), load_mtp=load_mtp)

    def beside(self, asked: RequestedSettings, spec: ModelSpec) -> Beside | None:
        """The files that the settings name beside the model, read; None without any. Raises ModelError."""
        if not (asked.lora or asked.mmproj or asked.draft_model):
            return None
        from advisor.memory.extras import Beside
        from advisor.model.beside import check_projector, read_adapter, read_projector

        adapters = tuple(read_adapter(self.header(path), spec) for path in asked.lora)
        projector = None
        if asked.mmproj:
            header = self.header(asked.mmproj)
            projector = read_projector(header)
            check_projector(header, spec, self.required("engines/llama_cpp.toml")["projector"])
        draft = self._draft(asked.draft_model, spec, asked.spec_type) if asked.draft_model else None
        return Beside(adapters, projector, draft)

    def takes_projector(self, spec: ModelSpec, path: str) -> bool:
        """Whether a projector that lies beside a model can be read and is that model's."""
        from advisor.model.beside import check_projector

        try:
            check_projector(self.header(path), spec, self.required("engines/llama_cpp.toml")["projector"])
        except ModelError:
            return False
        return True

    def drafting(self, asked: RequestedSettings, *, wished: bool = True) -> RequestedSettings:
        """`asked` with a --spec-type for its draft model where it has none, see `drafting_of`."""
        if not asked.draft_model or asked.spec_type:
            return asked
        return asked._replace(spec_type=drafting_of(self.header(asked.draft_model), wished=wished))

    def _draft(self, path: str, spec: ModelSpec, kinds: Sequence[str]) -> ModelSpec:
        """The draft model of `spec`. Raises WrongFileError for one whose drafts the engine does not take."""
        header = self.header(path)
        kind = kind_of(header)
        if kind not in ("model", "draft head"):
            raise WrongFileError(
                f"{header.path} is {KIND_TEXT[kind]}; --spec-draft-model takes a language model (.gguf)."
            )
        draft = self.model(header, load_mtp="draft-mtp" in kinds, draft=True)
        if kind != "model":
            return draft  # a head that was trained for its model
        problem = None
        if "draft-simple" in kinds:
            from advisor.model.vocabulary import FIRST_COMPARED_TOKEN, vocabulary_mismatch
            from advisor.stores.vocabulary import same_texts

            problem = vocabulary_mismatch(spec, draft)
            end = min(spec.n_vocab, draft.n_vocab)
            on_disk = header.source != "snapshot" and not spec.path.endswith((".json", ".json.gz"))
            same = problem is not None or not on_disk or same_texts(spec.path, draft.path, FIRST_COMPARED_TOKEN, end)
            if same is None:
                problem = (
                    f"the texts of their {end:,} tokens are longer or more than any vocabulary's, and are not compared"
                )
            elif not same:
                problem = f"of its {draft.n_vocab:,} tokens some have other texts"
        elif "draft-mtp" in kinds and draft.n_embd != spec.n_embd:
            problem = f"its states have {draft.n_embd:,} values, the model's {spec.n_embd:,}"
        if problem is not None:
            raise WrongFileError(
                f"{excerpt(draft.name)} cannot draft for {excerpt(spec.name)}: {problem}; "
                "give a draft model of the same family, or leave --spec-draft-model away."
            )
        return draft

    def overheads(self, host: HostSnapshot) -> dict[tuple[str, str], int]:
        """Observed bytes outside the engine's accounting by (backend, device name), for the devices of `host`."""
        if not host.devices:
            return {}
        from advisor.overheads import card_key, load_overheads
        from advisor.state import state_folder

        known = load_overheads(state_folder(os.environ))
        keys = {(device.backend, device.name): (device.backend, card_key(device.name)) for device in host.devices}
        return {key: known[card] for key, card in keys.items() if card in known}

    def host(
        self,
        *,
        gpus: Sequence[str] = (),
        no_gpu: bool = False,
        ram: int | None = None,
        hardware_file: str | None = None,
        ask_engine: bool = False,
        folders: Sequence[str] = (),
    ) -> HostSnapshot:
        """The machine: probed, replayed from a file, or as given by --gpu, --no-gpu and --ram."""
        if no_gpu and gpus:
            raise UsageError("--gpu and --no-gpu contradict each other; give one of them.")
        if hardware_file is not None:
            base = self._replay(hardware_file)
        elif gpus or no_gpu:
            from advisor.hardware.system import probe_system  # the real GPUs do not matter: do not ask them

            facts, report = probe_system()
            base = self._calibrated(HostSnapshot((), facts.ram, facts.cpu, facts.platform, probes=(report,)))
        else:
            from advisor.hardware.probe import probe_host

            base = probe_host(
                environ=os.environ,
                ask_engine=ask_engine,
                storage_folders=tuple(folders),
                load_table=self.gpu_table,
            )
            base = self._calibrated(base)
            if any(report.name == "engine_list" and "BLAS" in report.detail for report in base.probes):
                from advisor.recommend.words import blas_text

                base = base._replace(notes=(*base.notes, blas_text(self.engine(None))))
        if not gpus and not no_gpu and ram is None:
            return base
        from advisor.hardware.given import given_host

        if ram is not None:  # another machine
            self.calibration_problem = None
        try:
            return given_host(list(gpus), no_gpu, ram, base, self.gpu_table())
        except HardwareError as error:  # what was given on the command line is wrong, not the hardware
            raise UsageError(str(error)) from None

    def _calibrated(self, host: HostSnapshot) -> HostSnapshot:
        """`host` with what was measured on this machine, if anything was."""
        from advisor.state import state_folder

        folder = state_folder(os.environ)
        if not os.path.lexists(os.path.join(folder, "calibration.json")):  # its module is not loaded for nothing
            return host
        from advisor.calibrated import with_calibration

        found = with_calibration(host, folder)
        self.calibration_problem = next(iter(found.notes[len(host.notes) :]), None)
        return found

    def gpu_table(self) -> GpuTable:
        """The table of known cards; read only as far as a name has to be looked up."""
        from advisor.hardware.gpu_table import GpuTable

        return GpuTable(
            lambda: self.required("gpus.toml"), lambda words: self.rules.tables_holding("gpus.toml", "group", words)
        )

    def quant_rules(self) -> QuantRules:
        """What llama-quantize makes of tensors, and what quantizations cost in quality."""
        from advisor.quants.rules import parse_quants

        return parse_quants(self.required("quants.toml"))

    def _replay(self, path: str) -> HostSnapshot:
        import json

        from advisor.hardware.snapshot_file import from_json
        from advisor.regular import NotRegularError, read_regular

        try:
            data, _ = read_regular(path, MAX_SNAPSHOT_BYTES)
            document = json.loads(data) if len(data) <= MAX_SNAPSHOT_BYTES else None
        except NotRegularError:
            raise UsageError(
                f"{path} is not a regular file; make a snapshot with 'advisor hardware --save FILE'."
            ) from None
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read ({error.strerror}); make a snapshot with 'advisor hardware --save {path}'."
            ) from None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise HardwareError(f"{path} is no hardware snapshot; make one with 'advisor hardware --save FILE'.")
        return from_json(document, path)


def check(document: RuleDocument) -> None:
    """Hold a rule document against its schema and the source law. Raises RuleError."""
    if document.name == "gpus.toml":
        from advisor.hardware.gpu_table import GpuTable

        GpuTable.from_mapping(document.data, document.files[-1])
    else:
        check_document(document.data, schema_of(document.name), document.files[-1])
    if document.name == "quants.toml":
        from advisor.quants.rules import parse_quants

        parse_quants(document.data, document.files[-1])
    check_sources(document.data, document.files[-1])
