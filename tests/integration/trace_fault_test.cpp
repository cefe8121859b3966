#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <fstream>

namespace trace_fault_test {

using namespace troupe::test;

namespace {

constexpr const char* good_line = R"({"timestamp": 1, "input_length": 1024, "output_length": 2, "hash_ids": [1, 2]})";

/// A replay of this text, and that nothing was begun for it.
replay_outcome replay_refused(const scratch_directory& scratch, const std::string& trace) {
  const auto data = scratch / "data";
  const auto x =
      run_replay({"--trace", trace, "--page-bytes", "4096", "--set", "data_dir=" + data.string()}, scratch.path());
  INFO(x.err);
  CHECK(x.report.is_null());
  CHECK_FALSE(std::filesystem::exists(data));
  return x;
}

} // namespace

TEST_CASE("trace fault: a malformed line of a trace is an error with file and line and nothing runs") {
  struct broken_line {
    std::string_view text;
    const char* reason;
  };
  const std::vector<broken_line> lines{
      {R"({"timestamp": 1, "input_length": 1024, "output_length": 2, "hash_ids": [1, 2)", "not JSON"},
      {R"(timestamp,input_length)", "not JSON"},
      {std::string_view("{\"timestamp\": 1\0}", 17), "not JSON"},
      {"\xff\xfe{}", "not JSON"},
      {R"([1, 2])", "is not a JSON object"},
      {R"("text")", "is not a JSON object"},
      {R"({"timestamp": 1, "input_length": 1024, "output_length": 2})", "\"hash_ids\" is missing"},
      {R"({"input_length": 1024, "output_length": 2, "hash_ids": []})", "\"timestamp\" is missing"},
      {R"({"timestamp": 1, "input_length": 1024, "output_length": 2, "hash_ids": {}})", "hash_ids is"},
      {R"({"timestamp": 1, "input_length": 1024, "output_length": 2, "hash_ids": [1, -2]})", "hash_ids[1] is -2"},
      {R"({"timestamp": 1, "input_length": 1024, "output_length": 2, "hash_ids": [1.5]})", "hash_ids[0] is 1.5"},
      {R"({"timestamp": 1, "input_length": 1024, "output_length": 2, "hash_ids": ["1"]})", "hash_ids[0] is \"1\""},
      {R"({"timestamp": -1, "input_length": 1024, "output_length": 2, "hash_ids": [1]})", "timestamp is -1"},
      {R"({"timestamp": 1, "input_length": null, "output_length": 2, "hash_ids": [1]})", "input_length is null"},
      {"", "empty line"},
      {R"({"timestamp": 1, "input_length": 1024, "output_length": 2, "hash_ids": [1]} {})", "not JSON"},
  };
  const scratch_directory scratch;
  for (const auto& broken : lines) {
    INFO(broken.text);
    const auto file = scratch / "broken.jsonl";
    std::ofstream(file, std::ios::binary) << good_line << '\n'
                                          << good_line << '\n'
                                          << broken.text << '\n'
                                          << good_line << '\n';
    const auto x = replay_refused(scratch, file.string());
    CHECK(x.code == 2);
    CHECK(x.err.find(file.string() + ":3: ") != std::string::npos);
    CHECK(x.err.find(broken.reason) != std::string::npos);

    // Lines behind the limit are not looked at.
    check_clean(run_replay({"--trace", file.string(), "--page-bytes", "4096", "--limit", "2"}, scratch.path()), {});
  }
}

TEST_CASE("trace fault: the last line of a trace may lack its newline but must be complete") {
  const scratch_directory scratch;
  const auto file = scratch / "trace.jsonl";
  std::ofstream(file) << good_line << '\n' << good_line;
  check_clean(run_replay({"--trace", file.string(), "--page-bytes", "4096"}, scratch.path()), {});
  std::ofstream(file) << good_line << '\n' << std::string(good_line).substr(0, 40);
  const auto x = replay_refused(scratch, file.string());
  CHECK(x.code == 2);
  CHECK(x.err.find(file.string() + ":2: ") != std::string::npos);
}

TEST_CASE("trace fault: a trace without requests is refused") {
  const scratch_directory scratch;
  const auto file = scratch / "empty.jsonl";
  std::ofstream(file) << "";
  const auto x = replay_refused(scratch, file.string());
  CHECK(x.code == 2);
  CHECK(x.err.find("has no requests") != std::string::npos);
}

TEST_CASE("trace fault: a line without a newline is refused before it fills the memory") {
  const scratch_directory scratch;
  const auto x = replay_refused(scratch, "/dev/zero");
  CHECK(x.code == 2);
  CHECK(x.err.find("/dev/zero:1: ") != std::string::npos);
}

TEST_CASE("trace fault: a trace that cannot be read is an error that names it") {
  const scratch_directory scratch;
  const auto missing = (scratch / "missing.jsonl").string();
  // The last one can be opened, and its first page cannot be read.
  for (const auto& file : {missing, scratch.path().string(), std::string("/proc/self/mem")}) {
    const auto x = replay_refused(scratch, file);
    INFO(x.err);
    CHECK(x.code == 2);
    CHECK(x.err.find(file) != std::string::npos);
  }
}

TEST_CASE("trace fault: an attached replay with a malformed trace does not attach") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  const auto file = scratch / "broken.jsonl";
  std::ofstream(file) << good_line << "\n{\n";
  const auto x = run_replay({"--attach", node.address(), "--trace", file.string()});
  CHECK(x.code == 2);
  CHECK(x.report.is_null());
  CHECK(node.stop() == 0);
  CHECK(node.log().find("client attached") == std::string::npos);
}

} // namespace trace_fault_test
