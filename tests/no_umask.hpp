#pragma once

#include <sys/stat.h>
#include <sys/types.h>

namespace troupe::test {

/// As long as it lives, files are created with all the rights that their creator asks for, as by a service that is
/// started without a umask. The umask belongs to the whole process.
class no_umask {
public:
  no_umask() : before_(::umask(0)) {}
  no_umask(const no_umask&) = delete;
  no_umask& operator=(const no_umask&) = delete;
  ~no_umask() { ::umask(before_); }

private:
  mode_t before_;
};

} // namespace troupe::test
