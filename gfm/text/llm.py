"""Language models behind an OpenAI-compatible endpoint: many requests at once, each answer or its failure."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import queue
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gfm.config import LLMConfig
from gfm.errors import InputError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Messages = list[dict[str, str]]

_LOCAL = {"localhost", "127.0.0.1", "::1"}
_DONE = object()


@dataclass(frozen=True)
class Reply:
    """What a model has written; `truncated` where it ran out of tokens."""

    text: str
    truncated: bool = False


@dataclass(frozen=True)
class NoReply:
    """Why there is no reply, in one line."""

    reason: str


class OpenAICompatible:
    """Asks a chat model. Requests run concurrently, and are tried again with growing pauses.

    The key is read from the environment when the first request is made, and neither stored nor shown.

    Args:
        config: endpoint, model, limits and prices.
    """

    def __init__(self, config: LLMConfig) -> None:
        self.config = config
        self._calls = self._unknown = self._prompt_tokens = self._completion_tokens = 0
        self._succeeded = False
        self._formats = ["json_schema", "json_object", "text"]  # the first that the server takes

    def totals(self) -> Mapping[str, float]:
        """Calls, tokens and cost so far; calls of which the server does not tell the tokens are counted apart."""
        cost = self._prompt_tokens * self.config.price_in + self._completion_tokens * self.config.price_out
        return {
            "calls": self._calls,
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._completion_tokens,
            **({"calls_without_usage": self._unknown} if self._unknown else {}),
            **({"cost": round(cost / 1e6, 6)} if self.config.price_in or self.config.price_out else {}),
        }

    def complete_all(
        self, requests: Sequence[Messages], schema: Mapping[str, Any] | None = None
    ) -> Generator[tuple[int, Reply | NoReply], None, None]:
        """Yields `(position, reply)` for each request, as they come.

        Args:
            requests: chat messages.
            schema: JSON schema of the reply. A server that does not know schemas is asked for JSON, then for text.

        Raises:
            InputError: the endpoint is not there, or refuses key or model: no request could succeed.
        """
        key = self._key()
        results: queue.Queue[Any] = queue.Queue()
        loop = asyncio.new_event_loop()
        work = loop.create_task(self._work(key, requests, schema, results))

        def run() -> None:
            try:
                loop.run_until_complete(work)
            except asyncio.CancelledError:
                pass
            except BaseException as error:
                results.put(error)
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.close()
                results.put(_DONE)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            while (result := results.get()) is not _DONE:
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            if thread.is_alive() and not loop.is_closed():
                loop.call_soon_threadsafe(work.cancel)
            thread.join()

    async def _work(
        self, key: str, requests: Sequence[Messages], schema: Mapping[str, Any] | None, results: queue.Queue[Any]
    ) -> None:
        from openai import AsyncOpenAI

        config = self.config
        waiting = iter(enumerate(requests))
        url = config.base_url
        async with AsyncOpenAI(
            api_key=key, base_url=url, timeout=config.timeout, max_retries=config.max_retries
        ) as client:

            async def worker() -> None:
                for position, messages in waiting:
                    results.put((position, await self._ask(client, messages, schema)))

            workers = [asyncio.ensure_future(worker()) for _ in range(min(config.concurrency, len(requests)))]
            try:
                await asyncio.gather(*workers)
            finally:
                for task in workers:
                    task.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _ask(self, client: AsyncOpenAI, messages: Messages, schema: Mapping[str, Any] | None) -> Reply | NoReply:
        import openai

        try:
            while True:
                form = self._formats[0] if schema is not None else "text"
                try:
                    return self._reply(await self._send(client, messages, form, schema))
                except openai.BadRequestError as error:
                    if form == "text":
                        return NoReply(f"HTTP 400: {_one_line(error.message)}")
                    if self._formats[0] == form:  # not yet found out by another request
                        self._formats.pop(0)
        except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
            raise InputError(
                f"{client.base_url} refuses model {self.config.model!r} (HTTP {error.status_code}: "
                f"{_one_line(error.message)}); check the model, the address, and ${self.config.key_variable}"
            ) from error
        except openai.APITimeoutError:
            return NoReply(f"no answer within {self.config.timeout:g} s, {self.config.max_retries + 1} times")
        except openai.APIStatusError as error:
            return NoReply(f"HTTP {error.status_code}, {self.config.max_retries + 1} times")
        except openai.APIConnectionError as error:
            if self._succeeded:
                return NoReply(f"no connection ({_one_line(error.__cause__ or error)})")
            raise InputError(
                f"no connection to {client.base_url} ({_one_line(error.__cause__ or error)}); check "
                "extraction.llm.base_url and that the server runs"
            ) from error
        except (openai.OpenAIError, ValueError) as error:
            return NoReply(f"the answer is no chat completion ({_one_line(error)})")

    async def _send(
        self, client: AsyncOpenAI, messages: Messages, form: str, schema: Mapping[str, Any] | None
    ) -> object:
        formats: dict[str, Any] = {
            "json_schema": {"type": form, "json_schema": {"name": "reply", "strict": True, "schema": schema}},
            "json_object": {"type": form},
        }
        create: Any = client.chat.completions.create
        options = {"response_format": formats[form]} if form in formats else {}
        return await create(
            model=self.config.model, messages=messages, temperature=0, max_tokens=self.config.max_tokens, **options
        )

    def _reply(self, answer: Any) -> Reply | NoReply:
        """The text of an answer; servers differ in what they send, so nothing about it is taken for granted."""
        self._calls += 1
        usage = getattr(answer, "usage", None)
        tokens = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
        if all(isinstance(number, int) for number in tokens):
            self._prompt_tokens += tokens[0] or 0
            self._completion_tokens += tokens[1] or 0
        else:
            self._unknown += 1
        choices = getattr(answer, "choices", None)
        if not isinstance(choices, list):
            return NoReply("the answer is no chat completion")
        text = getattr(getattr(choices[0], "message", None), "content", None) if choices else None
        if not isinstance(text, str) or not text.strip():
            return NoReply("empty reply")
        self._succeeded = True
        return Reply(text, getattr(choices[0], "finish_reason", None) == "length")

    def _key(self) -> str:
        if importlib.util.find_spec("openai") is None:
            raise InputError('the package openai is not installed; run `pip install "gfm[llm]"`')
        key = os.environ.get(self.config.key_variable, "")
        url = self.config.base_url or os.environ.get("OPENAI_BASE_URL", "")
        if not key and urlsplit(url).hostname not in _LOCAL:
            raise InputError(
                f"the environment variable {self.config.key_variable} holds no key; set it, or name another variable "
                "as extraction.llm.key_variable"
            )
        return key or "none"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:200]
