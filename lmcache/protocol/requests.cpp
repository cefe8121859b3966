#include "lmcache/protocol/requests.hpp"

#include "lmcache/protocol/msgpack_writer.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::lmcache::protocol {

namespace {

constexpr std::string_view engine_tokens_setting = "lmcache.hint.engine_computed_tokens";

/// LMCache itself refuses salts with these characters.
bool is_salt(std::string_view x) noexcept {
  return x.size() <= salt_max && x.find_first_of(std::string_view("@/\\\0", 4)) == std::string_view::npos;
}

version_set without(versioned_field x) noexcept {
  version_set out;
  for (const auto each : versions)
    if (!versions_of(x).contains(each))
      out = out | version_set{each};
  return out;
}

void read_group_layout(msgpack_reader& in, group_layout& out) {
  enum : unsigned { layers = 1, hidden = 2, dtype = 4, block = 8, all = 15 };
  unsigned seen = 0;
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    const auto name = in.text();
    if (name == "num_layers") {
      out.layers = in.natural32();
      seen |= layers;
    } else if (name == "hidden_dim_size") {
      out.hidden = in.natural32();
      seen |= hidden;
    } else if (name == "dtype_str") {
      out.dtype = in.text();
      seen |= dtype;
    } else if (name == "tokens_per_block") {
      out.block_tokens = in.natural32();
      seen |= block;
    } else if (name == "window_tokens") {
      out.window_tokens = in.natural32();
    } else if (name == "kv_size") {
      out.planes = in.natural32();
    } else if (name == "window_chunks") {
      out.window_chunks = in.natural32();
    } else if (name == "recurrent") {
      out.recurrent = in.boolean();
    } else {
      in.skip();
    }
  }
  if (seen != all || out.planes > 2)
    in.fail();
}

void read_group_layouts(msgpack_reader& in, std::vector<group_layout>& out) {
  out.clear();
  const auto count = in.array();
  if (count > group_layouts_max)
    return in.fail();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i)
    read_group_layout(in, out.emplace_back());
}

void write_slots(msgpack_writer& out, std::span<const slot_place> slots, std::span<const slot_shape> shapes) {
  out.text("slots").array(static_cast<std::uint32_t>(slots.size()));
  for (const auto& x : slots) {
    const auto& shape = shapes[x.group];
    out.map(4).text("offset").natural(x.offset).text("length").natural(x.length).text("shape");
    out.array(static_cast<std::uint32_t>(shape.sizes.size()));
    for (const auto size : shape.sizes)
      out.natural(size);
    out.text("dtype").text(shape.dtype);
  }
}

void write_numbers(msgpack_writer& out, std::string_view name, std::span<const slot_place> slots,
                   std::uint32_t slot_place::*which) {
  out.text(name).array(static_cast<std::uint32_t>(slots.size()));
  for (const auto& x : slots)
    out.natural(x.*which);
}

/// Of a request's own settings only what the engine says of its cache is of use.
void read_settings(msgpack_reader& in, sequence_key& out) {
  if (in.next() != msgpack_reader::kind::map)
    return in.skip();
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    const bool is_said =
        in.next() == msgpack_reader::kind::text ? in.text() == engine_tokens_setting : (in.skip(), false);
    if (!is_said || in.next() != msgpack_reader::kind::integer) {
      in.skip();
      continue;
    }
    const auto tokens = in.integer();
    if (tokens >= 0 && tokens <= 0xffffffffLL)
      out.engine_tokens = static_cast<std::uint32_t>(tokens);
  }
}

} // namespace

bool read_key(byte_view frame, sequence_key& out, std::vector<std::uint32_t>& tokens) {
  out = {};
  tokens.clear();
  enum : unsigned { model = 1, world = 2, sequence = 4, begin = 8, end = 16, request = 32, all = 63 };
  unsigned seen = 0;
  msgpack_reader in(frame);
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    const auto name = in.text();
    if (name == name_of(versioned_field::token_ids)) {
      in.numbers(tokens);
      out.versions &= versions_of(versioned_field::token_ids);
      seen |= sequence;
    } else if (name == name_of(versioned_field::token_bytes)) {
      in.words(tokens);
      out.versions &= versions_of(versioned_field::token_bytes);
      seen |= sequence;
    } else if (name == "model_name") {
      out.model = in.text();
      seen |= model;
    } else if (name == "world_size") {
      out.world_size = in.natural32();
      seen |= world;
    } else if (name == "worker_id") {
      if (!in.take_nil())
        out.worker = in.natural32();
    } else if (name == "start") {
      out.begin = in.natural32();
      seen |= begin;
    } else if (name == "end") {
      out.end = in.natural32();
      seen |= end;
    } else if (name == "request_id") {
      out.request = in.text();
      seen |= request;
    } else if (name == "cache_salt") {
      out.salt = in.text();
    } else if (name == "num_kv_readers") {
      out.readers = in.natural32();
    } else if (name == "request_configs") {
      read_settings(in, out);
    } else {
      in.skip();
    }
  }
  return in.done() && seen == all && !out.versions.empty() && out.begin <= out.end && out.end <= tokens.size() &&
         out.world_size > 0 && out.model.size() <= text_max && out.request.size() <= text_max && is_salt(out.salt);
}

bool read_registration(byte_view frame, context_registration& out) {
  out = {};
  out.versions = without(versioned_field::group_layouts);
  enum : unsigned {
    instance = 1,
    model = 2,
    world = 4,
    block = 8,
    layers = 16,
    hidden = 32,
    dtype = 64,
    planes = 128,
    all = 255
  };
  unsigned seen = 0;
  msgpack_reader in(frame);
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    const auto name = in.text();
    if (name == "instance_id") {
      out.instance = in.integer();
      seen |= instance;
    } else if (name == "model_name") {
      out.model = in.text();
      seen |= model;
    } else if (name == "world_size") {
      out.world_size = in.natural32();
      seen |= world;
    } else if (name == "block_size") {
      out.block_tokens = in.natural32();
      seen |= block;
    } else if (name == "num_layers") {
      out.layers = in.natural32();
      seen |= layers;
    } else if (name == "hidden_dim_size") {
      out.hidden = in.natural32();
      seen |= hidden;
    } else if (name == "dtype_str") {
      out.dtype = in.text();
      seen |= dtype;
    } else if (name == "use_mla") {
      out.one_plane = in.boolean();
      seen |= planes;
    } else if (name == "num_physical_slots") {
      if (!in.take_nil())
        out.chunk_slots = in.natural32();
    } else if (name == name_of(versioned_field::group_layouts)) {
      read_group_layouts(in, out.groups);
      out.versions = versions_of(versioned_field::group_layouts);
    } else {
      in.skip();
    }
  }
  return in.done() && seen == all && out.model.size() <= text_max;
}

std::optional<std::int64_t> read_instance_of_registration(byte_view frame) {
  msgpack_reader in(frame);
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    if (in.text() != "instance_id") {
      in.skip();
      continue;
    }
    const auto out = in.integer();
    return in.ok() ? std::optional(out) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::int64_t> read_integer(byte_view frame) noexcept {
  msgpack_reader in(frame);
  const auto out = in.integer();
  return in.done() ? std::optional(out) : std::nullopt;
}

std::optional<double> read_real(byte_view frame) noexcept {
  msgpack_reader in(frame);
  const auto out = in.real();
  return in.done() && std::isfinite(out) ? std::optional(out) : std::nullopt;
}

std::optional<std::string_view> read_text(byte_view frame) noexcept {
  msgpack_reader in(frame);
  const auto out = in.text();
  return in.done() ? std::optional(out) : std::nullopt;
}

std::optional<std::optional<std::int64_t>> read_integer_or_nil(byte_view frame) noexcept {
  using integer_or_nil = std::optional<std::int64_t>;
  if (msgpack_reader in(frame); in.take_nil())
    return in.done() ? std::make_optional<integer_or_nil>(std::nullopt) : std::nullopt;
  const auto out = read_integer(frame);
  return out ? std::make_optional<integer_or_nil>(out) : std::nullopt;
}

bool read_skipped_chunks(byte_view frame, std::vector<std::vector<std::uint32_t>>& out) {
  out.clear();
  msgpack_reader in(frame);
  const auto count = in.array();
  if (count > group_layouts_max)
    return false;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i)
    in.numbers(out.emplace_back());
  return in.done();
}

bool read_ranges(byte_view frame, std::vector<std::pair<std::uint32_t, std::uint32_t>>& out) {
  out.clear();
  msgpack_reader in(frame);
  const auto count = in.array();
  if (count > ranges_max)
    return false;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    if (in.array() != 2)
      return false;
    const auto begin = in.natural32();
    const auto end = in.natural32();
    out.emplace_back(begin, end);
  }
  return in.done();
}

std::string answer(bool x) {
  return msgpack_writer().boolean(x).take();
}

std::string answer(std::uint64_t x) {
  return msgpack_writer().natural(x).take();
}

std::string answer_text(std::string_view x) {
  return msgpack_writer().text(x).take();
}

std::string answer_texts(std::span<const std::string_view> x) {
  msgpack_writer out;
  out.array(static_cast<std::uint32_t>(x.size()));
  for (const auto& text : x)
    out.text(text);
  return out.take();
}

std::string answer_transfer(std::string_view event, bool ok) {
  return msgpack_writer().array(2).bytes(event).boolean(ok).take();
}

std::string answer_registration(std::string_view shared_memory, std::uint64_t bytes) {
  // Clients skip a field that they do not know.
  return msgpack_writer()
      .map(3)
      .text("shm_name")
      .text(shared_memory)
      .text("pool_size")
      .natural(bytes)
      .text("null_block_id")
      .natural(null_block)
      .take();
}

std::string answer_prepared_store(std::span<const slot_place> slots, std::span<const slot_shape> shapes) {
  const bool names_groups = shapes.size() > 1;
  msgpack_writer out;
  out.map(1).text("context").map(names_groups ? 3 : 2);
  write_slots(out, slots, shapes);
  write_numbers(out, "chunk_indices", slots, &slot_place::chunk);
  if (names_groups)
    write_numbers(out, "group_ids", slots, &slot_place::group);
  return out.take();
}

std::string answer_no_store() {
  return msgpack_writer().map(1).text("context").map(0).take();
}

std::string answer_prepared_retrieve(std::span<const slot_place> slots, std::span<const slot_shape> shapes) {
  const bool names_groups = shapes.size() > 1;
  msgpack_writer out;
  out.map(3).text("success").boolean(true).text("data").bytes({}).text("context").map(names_groups ? 3 : 1);
  write_slots(out, slots, shapes);
  if (names_groups) {
    write_numbers(out, "chunk_indices", slots, &slot_place::chunk);
    write_numbers(out, "group_ids", slots, &slot_place::group);
  }
  return out.take();
}

std::string answer_no_retrieve() {
  return msgpack_writer().map(3).text("success").boolean(false).text("data").bytes({}).text("context").map(0).take();
}

std::string answer_module_call(std::string_view why_not) {
  return msgpack_writer()
      .map(3)
      .text("success")
      .boolean(false)
      .text("payload")
      .bytes({})
      .text("error")
      .text(why_not)
      .take();
}

std::optional<std::string> refusal(operation x) {
  switch (x) {
  case operation::store:
  case operation::retrieve:
  case operation::store_q:
  case operation::cb_retrieve_pre_computed:
    return answer_transfer({}, false);
  case operation::query_prefetch_status:
  case operation::wait_prefetch_status:
  case operation::p2p_lookup_and_lock:
    return answer(std::uint64_t{0});
  case operation::register_context:
    return answer_registration({}, 0);
  case operation::prepare_store:
    return answer_no_store();
  case operation::prepare_retrieve:
    return answer_no_retrieve();
  case operation::commit_store:
  case operation::commit_retrieve:
  case operation::ping:
    return answer(false);
  case operation::noop:
    return answer_text("OK");
  case operation::get_experimental:
  case operation::cb_reorder_plan:
  case operation::p2p_query_lookup_results:
    return answer_texts({});
  case operation::cb_unified_lookup:
    return msgpack_writer()
        .map(3)
        .text("prefix_coverage_tokens")
        .natural(0)
        .text("non_prefix_segments")
        .array(0)
        .text("segmented_prefix_segments")
        .array(0)
        .take();
  case operation::cb_protocol_handshake:
    return msgpack_writer().array(2).natural(0).boolean(false).take();
  case operation::server_module_call:
  case operation::server_module_affinity_call:
    return answer_module_call("this server has no modules");
  default:
    return std::nullopt;
  }
}

} // namespace troupe::lmcache::protocol
