#include "actors/node/namespaces/namespace_files.hpp"

#include "base/log.hpp"
#include "io/slab/slab_reader.hpp"

#include <algorithm>
#include <filesystem>
#include <sys/stat.h>
#include <utility>

namespace troupe {

namespace {

namespace fs = std::filesystem;

class real_namespace_files final : public namespace_files {
public:
  real_namespace_files(std::shared_ptr<const config::node_config> options, std::shared_ptr<io::extent_source> extents,
                       std::shared_ptr<const write_gate> gate)
      : options_(std::move(options)), extents_(std::move(extents)), gate_(std::move(gate)) {}

  std::vector<std::string> list() const override {
    std::vector<std::string> out;
    std::error_code none;
    for (const auto& x : fs::directory_iterator(made_slabs(*options_), none)) {
      const auto name = x.path().filename().string();
      const bool a_slab =
          name.find(".rank-") != std::string::npos && (name.ends_with(".slab") || name.ends_with(".slab.new"));
      if (a_slab && x.is_regular_file(none))
        out.push_back(name);
    }
    return out;
  }

  std::uint64_t bytes_of(const std::string& name) const override {
    const auto path = made_slabs(*options_) / name;
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0)
      return 0;
    // A sparse file has a right to more than it occupies.
    return std::max(static_cast<std::uint64_t>(status.st_blocks) * 512, io::granted_slab_bytes(path));
  }

  bool has(const std::string& name) const override {
    std::error_code none;
    return fs::exists(made_slabs(*options_) / name, none);
  }

  result<rank_parts> open(const namespace_spec& ns, rank_number rank, std::uint64_t first_slots) override {
    if (auto may = gate_->check("create a slab file of '" + ns.name + "'"); !may)
      return tl::unexpected(std::move(may).error());
    return open_made_rank(*options_, ns, rank, first_slots, extents_, gate_);
  }

  void remove(const std::string& name) override {
    std::error_code failed;
    const auto path = made_slabs(*options_) / name;
    if (const auto may = gate_->check("remove '" + path.string() + "'"); !may)
      return log::get("node")->warn("{}", may.error().text);
    fs::remove(path, failed);
    if (failed)
      log::get("node")->warn("cannot remove {}: {}", path.string(), failed.message());
  }

private:
  std::shared_ptr<const config::node_config> options_;
  std::shared_ptr<io::extent_source> extents_;
  std::shared_ptr<const write_gate> gate_;
};

} // namespace

std::shared_ptr<namespace_files> open_namespace_files(std::shared_ptr<const config::node_config> options,
                                                      std::shared_ptr<io::extent_source> extents,
                                                      std::shared_ptr<const write_gate> gate) {
  return std::make_shared<real_namespace_files>(std::move(options), std::move(extents), std::move(gate));
}

} // namespace troupe
