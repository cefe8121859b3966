#pragma once

#include "base/error.hpp"
#include "io/claims/claim_rules.hpp"

#include <filesystem>

namespace troupe::io {

/// Access to the claims of a data directory: files, or a replacement in tests. Calls may block for as long as a file
/// system does. One thread at a time.
class claim_files {
public:
  virtual ~claim_files() = default;

  virtual result<claim_sighting> look() = 0;
  /// Error: `exists` where there is a claim with the number.
  virtual result<void> make(claim_number number, const claim_record& what) = 0;
  /// Error: `not_found` where there is no claim with the number.
  virtual result<void> write(claim_number number, const claim_record& what) = 0;
  virtual result<void> remove_below(claim_number number) = 0;
};

/// The files `claims/00000001` and so on in a data directory. Each call opens what it needs, closes it again and lists
/// the directory anew: a file system shared by hosts shows the writes of others only to files that are opened
/// afterwards.
class claim_directory final : public claim_files {
public:
  explicit claim_directory(const std::filesystem::path& data_directory);

  result<claim_sighting> look() override;
  result<void> make(claim_number number, const claim_record& what) override;
  result<void> write(claim_number number, const claim_record& what) override;
  result<void> remove_below(claim_number number) override;

private:
  std::filesystem::path path_of(claim_number number) const;

  std::filesystem::path directory_;
};

} // namespace troupe::io
