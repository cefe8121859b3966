#pragma once

#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <filesystem>
#include <string>
#include <utility>

namespace troupe::test {

/// Certificates of an authority of their own, by the openssl program.
class certificates {
public:
  explicit certificates(const std::filesystem::path& directory) : directory_(directory) {
    make({"req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", path("ca.key"), "-out", path("ca.pem"), "-subj",
          "/CN=ours", "-days", "2"});
    // A peer says by its organizational unit that it is a node.
    for (const auto& [name, subject] : {std::pair<std::string, std::string>{"node", "/CN=node"},
                                        {"engine", "/CN=engine"},
                                        {"peer", "/O=ours/OU=node/CN=peer"}}) {
      make({"req", "-newkey", "rsa:2048", "-nodes", "-keyout", path(name + ".key"), "-out", path(name + ".csr"),
            "-subj", subject});
      make({"x509", "-req", "-in", path(name + ".csr"), "-CA", path("ca.pem"), "-CAkey", path("ca.key"),
            "-CAcreateserial", "-out", path(name + ".pem"), "-days", "2"});
    }
    make({"req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", path("foreign.key"), "-out", path("foreign.pem"),
          "-subj", "/CN=engine", "-days", "2"});
  }

  /// A further one, for these names, as "IP:127.0.0.1", by that subject.
  void add(const std::string& name, const std::string& subject, const std::string& names) const {
    make({"req", "-newkey", "rsa:2048", "-nodes", "-keyout", path(name + ".key"), "-out", path(name + ".csr"), "-subj",
          subject, "-addext", "subjectAltName=" + names});
    make({"x509", "-req", "-in", path(name + ".csr"), "-CA", path("ca.pem"), "-CAkey", path("ca.key"),
          "-CAcreateserial", "-out", path(name + ".pem"), "-days", "2", "-copy_extensions", "copy"});
  }

  arguments settings(const std::string& name) const {
    return {"--set", "actors.tls.certificate=" + path(name + ".pem"),
            "--set", "actors.tls.key=" + path(name + ".key"),
            "--set", "actors.tls.ca=" + path("ca.pem")};
  }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }

private:
  static void make(arguments what) {
    launch how;
    what.insert(what.begin(), "/usr/bin/openssl");
    how.arguments = std::move(what);
    const auto made = run(how);
    INFO(made.err);
    REQUIRE(made.code == 0);
  }

  std::filesystem::path directory_;
};

} // namespace troupe::test
