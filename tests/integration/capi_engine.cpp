#include "tests/integration/capi_engine.hpp"

#include "tests/catch.hpp"
#include "tests/patience.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace troupe::test {

namespace {

/// The longest time that steps continue while they wait for a result.
constexpr int capi_steps_max = 60'000;

std::string joined_ids(const std::vector<std::string>& ids) {
  std::string out;
  for (const auto& id : ids)
    out.append(id).push_back('\0');
  return out;
}

troupe_ids view_ids(const std::string& joined, std::size_t count) {
  return {joined.data(), joined.size(), count};
}

} // namespace

void demand_ok(const capi_outcome& x) {
  INFO(x.text);
  REQUIRE(x.code == TROUPE_OK);
}

std::vector<std::string> ids_of(const troupe_ids& ids) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < ids.length; at += out.back().size() + 1)
    out.emplace_back(ids.data + at);
  REQUIRE(out.size() == ids.count);
  return out;
}

capi_handle<troupe_connection> connect_to(const std::string& address, double wait_seconds) {
  auto how = sized<troupe_connect_options>();
  how.address = address.c_str();
  how.client_name = "capi-test";
  how.threads = 2;
  how.wait_for_node_seconds = wait_seconds == 0 ? 30 : wait_seconds;
  troupe_connection* out = nullptr;
  call(troupe_connect, &how, &out);
  return capi_handle<troupe_connection>(out);
}

/// The structs that say what an engine is, with what they point to.
struct capi_engine::terms {
  troupe_geometry geometry = sized<troupe_geometry>();
  troupe_namespace ns = sized<troupe_namespace>();
  troupe_engine engine = sized<troupe_engine>();

  explicit terms(const capi_shape& shape) {
    geometry.layers = shape.layers;
    geometry.page_tokens = shape.block_tokens * shape.blocks_per_page;
    if (shape.opaque) {
      geometry.opaque_block_bytes = shape.block_bytes();
    } else {
      geometry.parts = 1;
      geometry.heads = 2;
      geometry.head_size = 128;
      geometry.element_bytes = 2;
    }
    ns.name = shape.name.c_str();
    ns.model = shape.model.c_str();
    ns.dtype = shape.dtype.c_str();
    ns.hash_algorithm = shape.hash_algorithm.c_str();
    ns.geometry = &geometry;
    engine.tensor_parallel = shape.workers;
    engine.block_tokens = shape.block_tokens;
    engine.keys = shape.keys;
    engine.min_load_tokens = shape.min_load_tokens;
    engine.disk_hits = shape.disk_hits;
    engine.synchronous_loads = shape.synchronous_loads ? 1 : 0;
    engine.events = shape.events;
  }
  terms(const terms&) = delete;
};

capi_outcome capi_engine::try_scheduler(troupe_connection* connection, const capi_shape& shape) {
  const terms how(shape);
  troupe_scheduler* made = nullptr;
  const auto out = said_by(troupe_scheduler_create, connection, &how.ns, &how.engine, &made);
  CHECK((made != nullptr) == (out.code == TROUPE_OK));
  troupe_scheduler_destroy(made);
  return out;
}

capi_engine::capi_engine(troupe_connection* connection, capi_shape shape) : shape_(std::move(shape)) {
  const terms how(shape_);
  for (std::uint32_t i = 0; i < shape_.workers; ++i) {
    troupe_worker* worker = nullptr;
    call(troupe_worker_create, connection, &how.ns, &how.engine, i, -1, &worker);
    workers_.emplace_back(worker);
    caches_.emplace_back(shape_.block_bytes() * shape_.blocks * shape_.layers);
  }
  register_all();
  troupe_scheduler* scheduler = nullptr;
  call(troupe_scheduler_create, connection, &how.ns, &how.engine, &scheduler);
  scheduler_.reset(scheduler);
}

void capi_engine::register_all() {
  const auto layer_bytes = shape_.block_bytes() * shape_.blocks;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    std::vector<troupe_layer> layers;
    for (std::uint32_t layer = 0; layer < shape_.layers; ++layer)
      layers.push_back({caches_[i].data() + layer * layer_bytes, layer_bytes, shape_.block_bytes(),
                        shape_.block_bytes(), 256, std::uint64_t{256} * shape_.block_tokens});
    call(troupe_worker_register, workers_[i].get(), static_cast<const troupe_layer*>(layers.data()), layers.size(),
         shape_.blocks);
  }
}

std::uint32_t capi_engine::matched(const std::string& id, const std::vector<std::uint32_t>& prompt) {
  auto request = sized<troupe_request>();
  request.id = id.c_str();
  request.tokens = prompt.data();
  request.token_count = static_cast<std::uint32_t>(prompt.size());
  std::vector<std::uint8_t> hashes;
  if (shape_.keys == TROUPE_KEYS_ENGINE_HASHES) {
    // Tokens are only counted. The hash of a block: its first token and its place.
    request.tokens = nullptr;
    request.hash_count = request.token_count / shape_.block_tokens;
    hashes.resize(request.hash_count * std::size_t{32});
    for (std::uint32_t i = 0; i < request.hash_count; ++i) {
      std::memcpy(hashes.data() + i * std::size_t{32}, &prompt[i * shape_.block_tokens], 4);
      hashes[i * std::size_t{32} + 8] = static_cast<std::uint8_t>(i + 1);
    }
    request.hashes = hashes.data();
  }
  call(troupe_scheduler_on_new_request, scheduler_.get(), const_cast<const troupe_request*>(&request));
  auto found = sized<troupe_matched>();
  for (int i = 0; i < capi_steps_max; ++i) {
    call(troupe_scheduler_matched, scheduler_.get(), const_cast<const troupe_request*>(&request), 0U, &found);
    if (found.known != 0) {
      CHECK((found.asynchronous != 0) == (found.tokens > 0 && !shape_.synchronous_loads));
      return found.tokens;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw std::runtime_error("a lookup has no answer");
}

capi_engine::outputs capi_engine::step(const std::vector<part>& fresh, const std::vector<std::string>& preempted,
                                       const std::function<void()>& forward) {
  std::vector<std::string> names;
  std::vector<std::uint32_t> computed;
  std::vector<std::uint32_t> scheduled;
  std::vector<std::uint32_t> ends;
  std::vector<std::uint32_t> blocks;
  for (const auto& x : fresh) {
    names.push_back(x.id);
    computed.push_back(x.computed);
    scheduled.push_back(x.scheduled);
    blocks.insert(blocks.end(), x.blocks.begin(), x.blocks.end());
    ends.push_back(static_cast<std::uint32_t>(blocks.size()));
  }
  const auto names_text = joined_ids(names);
  const auto preempted_text = joined_ids(preempted);
  auto said = sized<troupe_step>();
  said.new_requests = static_cast<std::uint32_t>(fresh.size());
  said.requests = view_ids(names_text, names.size());
  said.computed_tokens = computed.data();
  said.scheduled_tokens = scheduled.data();
  said.block_ends = ends.data();
  said.blocks = {blocks.data(), blocks.size()};
  said.preempted = view_ids(preempted_text, preempted.size());
  troupe_bytes meta{};
  call(troupe_scheduler_build_meta, scheduler_.get(), const_cast<const troupe_step*>(&said), &meta);

  outputs out;
  std::vector<troupe_bytes> reports;
  const auto count = [&](const troupe_ids& ids, std::unordered_map<std::string, std::size_t>& counts,
                         std::vector<std::string>& complete) {
    for (auto& id : ids_of(ids))
      if (++counts[id] == workers_.size()) {
        counts.erase(id);
        complete.push_back(id);
      }
  };
  for (auto& x : workers_) {
    auto* worker = x.get();
    call(troupe_worker_handle_preemptions, worker, meta.data, meta.length);
    call(troupe_worker_bind, worker, meta.data, meta.length);
    if (shape_.synchronous_loads)
      call(troupe_worker_start_load, worker, nullptr);
  }
  if (forward)
    forward();
  for (auto& x : workers_) {
    auto* worker = x.get();
    if (!shape_.synchronous_loads)
      call(troupe_worker_start_load, worker, nullptr);
    call(troupe_worker_save, worker, nullptr);
    auto finished = sized<troupe_finished>();
    call(troupe_worker_get_finished, worker, nullptr, &finished);
    count(finished.sent, sent_, out.sent);
    count(finished.received, received_, out.received);
    for (auto& id : ids_of(finished.failed))
      out.failed.push_back(id);
    troupe_blocks errors{};
    call(troupe_worker_load_errors, worker, &errors);
    out.load_errors.insert(out.load_errors.end(), errors.data, errors.data + errors.count);
    troupe_bytes report{};
    call(troupe_worker_meta, worker, &report);
    reports.push_back(report);
    call(troupe_worker_clear, worker);
  }
  const auto sent = joined_ids(out.sent);
  const auto received = joined_ids(out.received);
  const auto failed = joined_ids(out.failed);
  auto output = sized<troupe_worker_output>();
  output.sent = view_ids(sent, out.sent.size());
  output.received = view_ids(received, out.received.size());
  output.failed = view_ids(failed, out.failed.size());
  output.load_errors = {out.load_errors.data(), out.load_errors.size()};
  output.worker_meta = reports.data();
  output.worker_meta_count = reports.size();
  call(troupe_scheduler_worker_output, scheduler_.get(), const_cast<const troupe_worker_output*>(&output));
  return out;
}

capi_engine::outputs capi_engine::idle_step() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return step({});
}

void capi_engine::finish(const std::string& id) {
  std::int32_t keep_blocks = 0;
  call(troupe_scheduler_finished, scheduler_.get(), id.c_str(), &keep_blocks);
  for (int i = 0; keep_blocks != 0 && i < capi_steps_max; ++i) {
    const auto sent = idle_step().sent;
    if (std::find(sent.begin(), sent.end(), id) != sent.end())
      return;
  }
  REQUIRE(keep_blocks == 0);
}

void capi_engine::run(const std::string& id, const std::vector<std::uint32_t>& prompt,
                      const std::vector<std::uint32_t>& blocks) {
  matched(id, prompt);
  call(troupe_scheduler_allocated, scheduler_.get(), id.c_str(), blocks.data(), blocks.size(), 0U);
  step({{id, 0, static_cast<std::uint32_t>(prompt.size()), blocks}}, {}, [&] { compute(prompt, blocks); });
  finish(id);
}

capi_engine::loaded capi_engine::load(const std::string& id, const std::vector<std::uint32_t>& prompt,
                                      const std::vector<std::uint32_t>& blocks) {
  loaded out;
  out.tokens = matched(id, prompt);
  call(troupe_scheduler_allocated, scheduler_.get(), id.c_str(), blocks.data(), blocks.size(), out.tokens);
  const auto take = [&](const outputs& x) {
    out.errors.insert(x.load_errors.begin(), x.load_errors.end());
    out.failed.insert(out.failed.end(), x.failed.begin(), x.failed.end());
    return std::find(x.received.begin(), x.received.end(), id) != x.received.end();
  };
  const auto compare = [&] {
    for (std::size_t i = 0; i < out.tokens / shape_.block_tokens; ++i)
      if (!out.errors.contains(blocks[i]))
        out.right = out.right && holds(prompt, i, blocks[i]);
  };
  if (shape_.synchronous_loads) {
    const auto left = static_cast<std::uint32_t>(prompt.size()) - out.tokens;
    CHECK_FALSE(take(step({{id, out.tokens, left, blocks}}, {}, compare)));
  } else if (out.tokens > 0) {
    bool received = false;
    for (int i = 0; !received && i < capi_steps_max; ++i)
      received = take(idle_step());
    REQUIRE(received);
    compare();
  }
  finish(id);
  return out;
}

void capi_engine::fill(std::uint8_t* to, std::size_t worker, std::size_t layer,
                       const std::vector<std::uint32_t>& prompt, std::size_t block_index) const {
  const auto first = prompt[block_index * shape_.block_tokens];
  for (std::size_t i = 0; i < shape_.block_bytes(); ++i)
    to[i] = static_cast<std::uint8_t>(first + i * 7 + i / 251 + worker * 91 + layer * 17 + block_index * 101);
}

const std::uint8_t* capi_engine::place(std::size_t worker, std::size_t layer, std::uint32_t block) const {
  return caches_[worker].data() + (layer * shape_.blocks + block) * shape_.block_bytes();
}

void capi_engine::compute(const std::vector<std::uint32_t>& prompt, const std::vector<std::uint32_t>& blocks) {
  for (std::size_t worker = 0; worker < caches_.size(); ++worker)
    for (std::size_t layer = 0; layer < shape_.layers; ++layer)
      for (std::size_t i = 0; i < prompt.size() / shape_.block_tokens; ++i)
        fill(const_cast<std::uint8_t*>(place(worker, layer, blocks[i])), worker, layer, prompt, i);
}

bool capi_engine::holds(const std::vector<std::uint32_t>& prompt, std::size_t block_index, std::uint32_t block) const {
  std::vector<std::uint8_t> expected(shape_.block_bytes());
  for (std::size_t worker = 0; worker < caches_.size(); ++worker)
    for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
      fill(expected.data(), worker, layer, prompt, block_index);
      if (std::memcmp(expected.data(), place(worker, layer, block), expected.size()) != 0)
        return false;
    }
  return true;
}

std::size_t capi_engine::tracked() const {
  std::size_t out = 0;
  call(troupe_scheduler_tracked_requests, scheduler_.get(), &out);
  return out;
}

} // namespace troupe::test
