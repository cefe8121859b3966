#include "io/slab/renamed_slab.hpp"

#include "io/slab/slab_reader.hpp"

#include <string>
#include <system_error>

namespace troupe::io {

namespace {

namespace fs = std::filesystem;

bool is_same_but_for_its_name(const slab_spec& found, const slab_spec& wanted) {
  return found.ns == wanted.ns && found.rank == wanted.rank && found.slot_bytes == wanted.slot_bytes &&
         found.slots == wanted.slots && found.grows == wanted.grows;
}

} // namespace

std::optional<fs::path> find_renamed_slab(const slab_spec& wanted) {
  std::error_code failure;
  if (fs::exists(wanted.path, failure) || failure)
    return std::nullopt;
  const auto ending = ".rank-" + std::to_string(wanted.rank) + ".slab";
  std::optional<fs::path> out;
  fs::directory_iterator files(wanted.path.parent_path(), failure);
  for (; !failure && files != fs::directory_iterator(); files.increment(failure)) {
    if (!files->path().filename().string().ends_with(ending))
      continue;
    const auto slab = slab_reader::open(files->path());
    if (!slab || !is_same_but_for_its_name(slab->spec(), wanted))
      continue;
    if (out)
      return std::nullopt;
    out = files->path();
  }
  return failure ? std::nullopt : out;
}

} // namespace troupe::io
