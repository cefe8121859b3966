#pragma once

#include "io/slab/page_store.hpp"
#include "io/slab/slab_file.hpp"

#include <filesystem>
#include <memory>
#include <vector>

namespace troupe::io {

/// A slab file and the engine that reads and writes it.
class slab_store final : public page_store {
public:
  /// Takes both, and registers the file with the engine. `direct`: whether the engine's transfers bypass the page
  /// cache, whatever the flags of the slab's descriptor. Error: those of `engine::add_file`.
  static result<std::unique_ptr<slab_store>> make(slab_file slab, std::unique_ptr<engine> mover, bool direct = false);

  const page_store_traits& traits() const noexcept override { return traits_; }
  result<std::uint32_t> add_buffer(std::span<std::byte> bytes) override { return engine_->add_buffer(bytes); }
  void remove_buffer(std::uint32_t buffer) override { engine_->remove_buffer(buffer); }
  void submit(std::span<const page_request> requests) override;
  void stop() override { engine_->stop(); }
  result<void> health() const override;
  std::shared_ptr<store_growth> growth() const override;
  std::vector<std::uint64_t> occupied() const override;
  std::string describe() const override { return engine_->describe(); }

private:
  slab_store(slab_file slab, std::unique_ptr<engine> mover, std::uint32_t file, bool direct);

  /// Declared before the engine, which uses its descriptor until it is destroyed.
  slab_file slab_;
  std::unique_ptr<engine> engine_;
  std::uint32_t file_;
  page_store_traits traits_;
  /// Space to translate a batch, kept between batches.
  std::vector<request> requests_;
};

struct slab_store_options {
  slab_spec slab;
  /// Use O_DIRECT where the file system supports it.
  bool direct = true;
  engine_options engine;
  /// How long to wait for a slab that is in use.
  duration patience{};
};

/// Whether an engine of this kind would bypass the kernel for a file there, by 3FS's rings.
bool goes_past_the_kernel(engine_kind kind, const std::filesystem::path& file);

/// Opens or creates the slab file, and starts its engine. Waits while the slab is in use, up to the patience in the
/// options. Errors: those of `slab_file::open` and `make_engine`.
result<std::unique_ptr<page_store>> open_slab_store(const slab_store_options& options, completion_sink sink);

} // namespace troupe::io
