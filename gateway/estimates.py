"""How large a call will be, before it runs; learnt from how large the ones before it were."""

from __future__ import annotations

from gateway.admission import Estimate
from gateway.run import Run
from gateway.wire.answers import charged
from gateway.wire.request import ParsedCall
from metering.core.error_book import ErrorBook
from metering.core.predictor import OutputPredictor
from metering.core.prompt_estimate import PromptEstimator
from metering.learnt import Dumps, restore

MEDIA_TOKENS = 765  # one 1024×1024 picture in most open vision models; settled by the engine
OPEN_CEILING_TOKENS = 4096  # held for a call without a limit, where policy has none either


class Estimates:
    def __init__(self, learnt: Dumps | None = None) -> None:
        self.output = OutputPredictor()
        self.prompt = PromptEstimator()
        self.output_errors = ErrorBook()
        self.prompt_errors = ErrorBook()
        restore(learnt or Dumps(), self.output, self.prompt, self.output_errors, self.prompt_errors)

    def learnt(self) -> Dumps:
        return Dumps(
            self.output.dump(),
            self.prompt.dump(),
            self.output_errors.dump(),
            self.prompt_errors.dump(),
        )

    def prompt_tokens(self, model: str, call: ParsedCall) -> int:
        text = self.prompt.estimate(model, call.prompt_bytes) if call.prompt_bytes else 0
        return charged(text + beside_text(call), call.route.charged_share)

    def of(
        self, application: str, model: str, call: ParsedCall, prompt: int, ceiling: int | None
    ) -> Estimate:
        """`application` names it among all tenants' (`acme/support-bot`); `ceiling` is the most
        that one answer may have. Several answers cost as many times the output; what generates
        nothing has none."""
        if not call.route.generates:
            return Estimate(prompt, 0, 0)
        expected = self.output.expect(application, model, ceiling)
        most = OPEN_CEILING_TOKENS if ceiling is None else ceiling
        return Estimate(prompt, expected * call.choices, most * call.choices)

    def learn(self, application: str, model: str, call: ParsedCall, run: Run) -> None:
        """From an answer that ended by itself and whose usage the engine told."""
        if (
            run.usage is None
            or not run.usage_is_exact
            or run.finish not in ("stop", "length", "tool_calls")
        ):
            return
        if call.route.generates:
            self._learn_output(application, model, call, run.usage.completion, run)
        if call.route.charged_share > 1:
            return
        if run.plan is not None:
            self.prompt_errors.add(model, run.usage.prompt, run.plan.estimate.prompt_tokens)
        if not call.media:
            self.prompt.observe(model, call.prompt_bytes, run.usage.prompt - call.prompt_tokens)

    def _learn_output(
        self, application: str, model: str, call: ParsedCall, tokens: int, run: Run
    ) -> None:
        if run.plan is not None:
            self.output_errors.add(model, tokens, run.plan.estimate.output_tokens)
        self.output.observe(application, model, tokens // call.choices)


def beside_text(call: ParsedCall) -> int:
    """Prompt tokens that are not of its text. What a chat template adds is in the learnt ratio."""
    return call.prompt_tokens + call.media * MEDIA_TOKENS
