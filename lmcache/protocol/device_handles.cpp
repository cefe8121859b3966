#include "lmcache/protocol/device_handles.hpp"

#include "lmcache/protocol/requests.hpp"

namespace troupe::lmcache::protocol {

namespace {

using value = msgpack_reader::kind;

constexpr std::int8_t handle_extension = 1;
constexpr std::int64_t handle_version = 1;
constexpr std::size_t axes_max = 16;
constexpr std::uint32_t groups_max = 64;

/// PyTorch's tuple: device, handle, bytes, offset, file of counters, counter, event, whether to wait for it.
constexpr std::uint32_t storage_values = 8;

void read_sizes(msgpack_reader& in, std::vector<std::uint64_t>& out) {
  out.clear();
  for (auto left = in.array(); left > 0 && in.ok(); --left) {
    if (out.size() == axes_max)
      return in.fail();
    out.push_back(in.natural());
  }
}

void read_metadata(msgpack_reader& in, tensor_handle& out) {
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    const auto name = in.text();
    if (name == "dtype")
      out.dtype = in.text();
    else if (name == "shape")
      read_sizes(in, out.sizes);
    else if (name == "stride")
      read_sizes(in, out.strides);
    else if (name == "storage_offset")
      out.first_element = in.natural();
    else if (name == "device_uuid")
      out.device = in.text();
    else
      in.skip();
  }
  if (out.sizes.empty() || out.sizes.size() != out.strides.size() || out.dtype.empty())
    in.fail();
}

byte_view bytes_or_nil(msgpack_reader& in) {
  return in.take_nil() ? byte_view{} : in.bytes();
}

void read_storage(msgpack_reader& in, tensor_handle& out) {
  if (in.array() != storage_values)
    return in.fail();
  in.skip();
  out.allocation = bytes_or_nil(in);
  out.bytes = in.natural();
  out.offset = in.natural();
  out.counter_file = bytes_or_nil(in);
  out.counter_index = in.natural();
  // The writes that it stands for come before the event of each request.
  in.skip();
  in.skip();
}

/// The field that decides which other fields follow. LMCache sends it first, other clients anywhere.
std::string_view kind_of(byte_view body) {
  msgpack_reader in(body);
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    const auto name = in.text();
    if (name == "type")
      return in.text();
    in.skip();
  }
  return {};
}

bool read_handle(byte_view body, tensor_handle& out) {
  out = {};
  out.kind = kind_of(body);
  const bool shared = out.kind == "cpu_shm";
  const bool raw = out.kind == "cuda_raw";
  const bool storage = out.kind == "cuda";
  if (out.kind.empty())
    return false;
  std::int64_t version = 0;
  bool has_metadata = false;
  msgpack_reader in(body);
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    const auto name = in.text();
    if (name == "version") {
      version = in.integer();
    } else if (name == "metadata" && (shared || raw || storage)) {
      read_metadata(in, out);
      has_metadata = true;
    } else if (name == "nbytes" && (shared || raw)) {
      out.bytes = in.natural();
    } else if (name == "shm_name" && shared) {
      out.name = in.text();
    } else if (name == "ipc_handle" && raw) {
      out.allocation = in.bytes();
    } else if (name == "alloc_offset" && raw) {
      out.offset = in.natural();
    } else if (name == "handle" && storage) {
      read_storage(in, out);
    } else {
      in.skip();
    }
  }
  return in.done() && version == handle_version && (has_metadata || !(shared || raw || storage));
}

void read_group(msgpack_reader& in, layer_group& out) {
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    const auto name = in.text();
    if (name == "layer_indices")
      in.numbers(out.layers);
    else if (name == "tokens_per_block")
      out.block_tokens = in.natural32();
    else if (name == "sw_size_tokens")
      out.sliding = in.integer() > 0;
    else if (name == "recurrent_state")
      out.recurrent = in.boolean();
    else
      in.skip();
  }
}

bool read_hints(byte_view frame, kv_cache_registration& out) {
  msgpack_reader in(frame);
  if (in.take_nil())
    return in.done();
  for (auto fields = in.map(); fields > 0 && in.ok(); --fields) {
    if (in.text() == "kv_layout" && in.next() == value::text)
      out.layout = in.text();
    else
      in.skip();
  }
  return in.done();
}

bool read_tensors(byte_view frame, std::vector<tensor_handle>& out) {
  msgpack_reader in(frame);
  const auto count = in.array();
  if (count > tensors_max)
    return false;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    const auto handle = in.extension();
    if (!in.ok() || handle.type != handle_extension || !read_handle(handle.bytes, out.emplace_back()))
      return false;
  }
  return in.done();
}

bool read_groups(byte_view frame, std::vector<layer_group>& out) {
  msgpack_reader in(frame);
  if (in.take_nil())
    return in.done();
  const auto count = in.array();
  if (count > groups_max)
    return false;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i)
    read_group(in, out.emplace_back());
  return in.done();
}

} // namespace

bool read_kv_cache(std::span<const byte_view> frames, kv_cache_registration& out) {
  out = {};
  if (frames.size() != 6 || !read_tensors(frames[0], out.tensors))
    return false;
  const auto model = read_text(frames[1]);
  const auto world = read_integer(frames[2]);
  const auto engine = read_text(frames[3]);
  if (!model || model->size() > text_max || !world || *world <= 0 || *world > 0xffffffffLL || !engine)
    return false;
  out.model = *model;
  out.world_size = static_cast<std::uint32_t>(*world);
  out.engine = *engine;
  return read_hints(frames[4], out) && read_groups(frames[5], out.groups);
}

bool read_blocks(byte_view frame, std::vector<std::vector<std::uint32_t>>& out) {
  out.clear();
  msgpack_reader in(frame);
  const auto count = in.array();
  if (count > groups_max)
    return false;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i)
    in.numbers(out.emplace_back());
  return in.done();
}

} // namespace troupe::lmcache::protocol
