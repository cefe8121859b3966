#pragma once

#include "tests/patience.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <system_error>

namespace troupe::test {

/// Copies a directory of a program that runs, as it was at a moment: files may go while they are copied, as those that
/// a store needs no longer, and then it is copied again.
inline void copy_live(const std::filesystem::path& from, const std::filesystem::path& to) {
  namespace fs = std::filesystem;
  const auto sizes = [&from] {
    std::map<fs::path, std::uintmax_t> out;
    std::error_code gone;
    for (auto i = fs::recursive_directory_iterator(from, gone); i != fs::end(i); i.increment(gone)) {
      out[i->path()] = i->is_directory(gone) ? 0 : fs::file_size(i->path(), gone);
      if (gone)
        break;
    }
    return out;
  };
  const auto is_copied = [&] {
    std::error_code gone;
    fs::remove_all(to, gone);
    const auto before = sizes();
    fs::copy(from, to, fs::copy_options::recursive, gone);
    return !gone && sizes() == before;
  };
  if (!eventually(is_copied))
    throw std::runtime_error(from.string() + " never stays as it is");
}

} // namespace troupe::test
