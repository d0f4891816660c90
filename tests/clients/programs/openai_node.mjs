// OpenAI's package for Node: `node openai_node.mjs CHECK`, with FAIRLANE_OPENAI as where it lies.
import assert from "node:assert/strict";

const { default: OpenAI } = await import(process.env.FAIRLANE_OPENAI);
const [url, keys] = [process.env.FAIRLANE_URL, JSON.parse(process.env.FAIRLANE_KEYS)];
const model = "chat";
const messages = [{ role: "user", content: "Hello there" }];
const endless = { model, messages, max_tokens: 30000, ignore_eos: true };
const parameters = { type: "object", properties: { town: { type: "string" } } };

const client = (tenant = "open", options = {}) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: keys[tenant] ?? tenant, ...options });
const ask = (caller, fields, options) =>
  caller.chat.completions.create({ model, messages, max_tokens: 5, ...fields }, options);

async function all(stream) {
  const found = [];
  for await (const one of stream) found.push(one);
  return found;
}

async function waitForAPlace(caller) {
  for (;;) {
    try {
      return await ask(caller, { max_tokens: 2 });
    } catch (error) {
      assert.equal(error.status, 429);
      await new Promise((done) => setTimeout(done, 50));
    }
  }
}

const checks = {
  async check_chat() {
    const { data, response, request_id } = await ask(client()).withResponse();
    assert.equal(data.id, `chatcmpl-${request_id}`);
    assert.equal(response.headers.get("x-fairlane-lane"), "normal");
  },
  async check_stream() {
    const chunks = await all(await ask(client(), { stream: true, stream_options: { include_usage: true } }));
    assert.ok(chunks.at(-1).usage.completion_tokens <= 5);
    const helper = client().chat.completions.stream({ model, messages, max_tokens: 5 });
    assert.ok((await helper.finalChatCompletion()).choices[0].message.content);
  },
  async check_tools() {
    const weather = { name: "weather", parse: JSON.parse, parameters, function: ({ town }) => `rain in ${town}` };
    for (const stream of [false, true]) {
      const tools = [{ type: "function", function: weather }];
      const runner = client().chat.completions.runTools({ model, messages, tools, stream });
      assert.ok(await runner.finalContent());
      assert.equal(runner.messages.find((m) => m.role === "tool").content, "rain in sea");
    }
  },
  async check_forms() {
    const response_format = { type: "json_schema", json_schema: { name: "place", schema: parameters } };
    const answer = await client().chat.completions.parse({ model, messages, response_format });
    assert.deepEqual(JSON.parse(answer.choices[0].message.content), { town: "sea" });
  },
  async check_responses() {
    const asked = { model, input: "Hello", max_output_tokens: 5 };
    assert.ok((await client().responses.create(asked)).output_text);
    const stream = client().responses.stream(asked);
    assert.equal((await all(stream)).at(-1).type, "response.completed");
    assert.ok((await stream.finalResponse()).output_text);
  },
  async check_completions() {
    const asked = { model, prompt: "Once upon", max_tokens: 5 };
    const whole = (await client().completions.create(asked)).choices[0].text;
    const chunks = await all(await client().completions.create({ ...asked, stream: true }));
    assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), whole);
  },
  // It asks for base64 where no form is named.
  async check_embeddings() {
    const given = await client().embeddings.create({ model, input: ["Hello", "there"] });
    const floats = await client().embeddings.create({ model, input: "Hello", encoding_format: "float" });
    assert.equal(given.data.length, 2);
    given.data[0].embedding.forEach((x, i) => assert.ok(Math.abs(x - floats.data[0].embedding[i]) < 1e-6));
  },
  async check_models() {
    assert.ok((await all(client().models.list())).some((found) => found.id === model));
    assert.equal((await client().models.retrieve(model)).id, model);
  },
  async check_errors() {
    const long = [{ role: "user", content: "word ".repeat(300) }];
    for (const [tenant, fields, kind, code] of [
      ["fl_nobody_x", {}, OpenAI.AuthenticationError, "invalid_api_key"],
      ["open", { model: "gpt-9" }, OpenAI.NotFoundError, "model_not_found"],
      ["short", { messages: long }, OpenAI.BadRequestError, "context_length_exceeded"],
    ]) {
      const refused = await ask(client(tenant), fields).catch((error) => error);
      assert.ok(refused instanceof kind, code);
      assert.deepEqual([refused.code, refused.requestID.length], [code, 32]);
    }
  },
  // Its own retry comes when there is room: it is refused once, not twice.
  async check_waits_as_told() {
    const seen = [];
    const watched = async (...asked) => {
      const answer = await fetch(...asked);
      seen.push(answer.status);
      return answer;
    };
    const caller = client("bucket", { maxRetries: 2, fetch: watched });
    while (!seen.includes(429) && seen.length < 30) await ask(caller, { max_tokens: 50, ignore_eos: true });
    assert.deepEqual(seen.slice(-2), [429, 200]);
  },
  // It would sleep as long as it is told to: a day, where a tenant may run nothing.
  async check_stops_when_told() {
    for (const tenant of ["spent", "closed"]) {
      let asked = 0;
      const counted = (...given) => ((asked += 1), fetch(...given));
      const refused = await ask(client(tenant, { fetch: counted })).catch((error) => error);
      assert.deepEqual([refused.status, asked], [429, 1]);
    }
  },
  // The only place is given back when a stream is left, and when a call is aborted or given up.
  async check_hang_up() {
    const caller = client("one", { maxRetries: 0 });
    for await (const chunk of await ask(caller, { ...endless, stream: true })) {
      assert.ok(chunk.id);
      break;
    }
    await waitForAPlace(caller);
    const abort = new AbortController();
    setTimeout(() => abort.abort(), 500);
    const given = await ask(caller, endless, { signal: abort.signal }).catch((error) => error);
    assert.ok(given instanceof OpenAI.APIUserAbortError);
    await waitForAPlace(caller);
    const late = await ask(caller, endless, { timeout: 500 }).catch((error) => error);
    assert.ok(late instanceof OpenAI.APIConnectionTimeoutError);
    await waitForAPlace(caller);
  },
};

await checks[process.argv[2]]();
