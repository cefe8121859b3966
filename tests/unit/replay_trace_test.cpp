#include "tests/catch.hpp"
#include "tests/replay_model/expected_hits.hpp"
#include "workload/replay/keys.hpp"
#include "workload/replay/trace.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <unistd.h>

namespace replay_trace_test {

namespace {

using namespace troupe;
using namespace troupe::replay;
using test::expect_hits;
using test::expected_hits;

/// A temporary directory that is removed at the end.
class scratch {
public:
  scratch() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("troupe-trace-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::filesystem::path write(const std::string& content) const {
    std::ofstream(path_ / "trace.jsonl", std::ios::binary) << content;
    return path_ / "trace.jsonl";
  }

  const std::filesystem::path& path() const { return path_; }

private:
  std::filesystem::path path_;
};

std::string line(const std::string& hash_ids) {
  return R"({"timestamp": 5, "input_length": 1024, "output_length": 7, "hash_ids": )" + hash_ids + "}";
}

/// The error of a trace whose second line is `bad`.
error error_of(const std::string& bad) {
  const scratch dir;
  const auto file = dir.write(line("[1]") + "\n" + bad + "\n" + line("[2]") + "\n");
  const auto got = read_trace(file, {});
  INFO(bad.substr(0, 200));
  REQUIRE(!got.has_value());
  CHECK(got.error().text.find(file.string() + ":2: ") == 0);
  return got.error();
}

std::filesystem::path real_trace() {
#ifdef TROUPE_SOURCE_DIR
  return std::filesystem::path(TROUPE_SOURCE_DIR) / ".." / "shared" / "traces" / "conversation_trace.jsonl";
#else
  return std::filesystem::path(__FILE__).parent_path() / ".." / ".." / ".." / "shared" / "traces" /
         "conversation_trace.jsonl";
#endif
}

} // namespace

TEST_CASE("replay trace: a trace is parsed unchanged", "[replay]") {
  const scratch dir;
  const auto end = GENERATE(std::string{}, std::string{"\n"}, std::string{"\n\n"}, std::string{"\r\n \t\r\n"});
  const auto file = dir.write(line("[0, 18446744073709551615, 7]") + "\n" +
                              R"({"hash_ids":[],"output_length":0,"more":{"x":[1]},"input_length":3,"timestamp":0})" +
                              "\r\n" + line("[1]") + end);
  const auto requests = read_trace(file, {});
  REQUIRE(requests.has_value());
  REQUIRE(requests->size() == 3);
  CHECK((*requests)[0] == trace_request{5, 1024, 7, {0, ~std::uint64_t{0}, 7}});
  CHECK((*requests)[1] == trace_request{0, 3, 0, {}});
  CHECK((*requests)[2].hash_ids == std::vector<std::uint64_t>{1});
}

TEST_CASE("replay trace: a malformed line is an error with file and line", "[replay]") {
  CHECK(error_of("nonsense").text.find("not JSON") != std::string::npos);
  CHECK(error_of("{").code == errc::invalid_argument);
  CHECK(error_of(line("[1]") + line("[1]")).text.find("not JSON") != std::string::npos);
  CHECK(error_of("").text.find("empty line") != std::string::npos);
  CHECK(error_of("[1]").text.find("not a JSON object") != std::string::npos);
  CHECK(error_of("null").code == errc::invalid_argument);
  CHECK(error_of(std::string("\0\x80\xff", 3)).code == errc::invalid_argument);
  CHECK(error_of(line("[1, 2").substr(0, 60)).code == errc::invalid_argument);
  CHECK(error_of(line("7")).text.find("hash_ids is 7, must be an array") != std::string::npos);
  CHECK(error_of(line("null")).code == errc::invalid_argument);
  CHECK(error_of(line("{\"0\": 1}")).code == errc::invalid_argument);
  CHECK(error_of(std::string(200'000, '[')).code == errc::invalid_argument);
}

TEST_CASE("replay trace: ids that are negative, too large or not integers are refused by position", "[replay]") {
  for (const auto* id : {"-1", "-0", "1.5", "1e3", "18446744073709551616", "1e400", "\"3\"", "null", "true", "[1]",
                         "{}", "-9223372036854775809"}) {
    const auto e = error_of(line("[4, " + std::string(id) + ", 6]"));
    INFO(e.text);
    CHECK(e.code == errc::invalid_argument);
    // 1e400 is refused by the JSON parser itself.
    CHECK((e.text.find("hash_ids[1]") != std::string::npos || std::string(id) == "1e400"));
  }
}

TEST_CASE("replay trace: every field is required and a natural number", "[replay]") {
  const std::string fields[] = {"timestamp", "input_length", "output_length"};
  for (const auto& field : fields) {
    auto bad = line("[1]");
    bad.replace(bad.find(field), field.size(), "other");
    CHECK(error_of(bad).text.find("\"" + field + "\" is missing") != std::string::npos);
    for (const auto* value : {"-1", "1.5", "\"1\"", "null"}) {
      bad = line("[1]");
      const auto at = bad.find(field) + field.size() + 3;
      bad.replace(at, bad.find(',', at) - at, value);
      CHECK(error_of(bad).text.find(field + " is " + value) != std::string::npos);
    }
  }
  CHECK(
      error_of(R"({"timestamp": 5, "input_length": 1024, "output_length": 7})").text.find("\"hash_ids\" is missing") !=
      std::string::npos);
}

TEST_CASE("replay trace: an unreadable or empty trace is an error", "[replay]") {
  const scratch dir;
  const auto missing = read_trace(dir.path() / "missing.jsonl", {});
  REQUIRE(!missing.has_value());
  CHECK(missing.error().code == errc::io_error);
  CHECK(missing.error().text.find("missing.jsonl") != std::string::npos);
  CHECK(missing.error().text.find("No such file") != std::string::npos);
  CHECK(read_trace(dir.path(), {}).error().text.find("directory") != std::string::npos);
  CHECK(read_trace(dir.write(""), {}).error().text.find("no requests") != std::string::npos);
  CHECK(read_trace(dir.write("\n \n"), {}).error().text.find("no requests") != std::string::npos);
}

TEST_CASE("replay trace: an endless line is refused without being held in memory", "[replay]") {
  const scratch dir;
  const auto file = dir.write(line("[1]") + "\n" + std::string((std::size_t{16} << 20U) + 1, ' '));
  const auto got = read_trace(file, {});
  REQUIRE(!got.has_value());
  CHECK(got.error().code == errc::limit_exceeded);
  CHECK(read_trace("/dev/zero", {}).error().code == errc::limit_exceeded);
  // A line longer than the reader's buffer is whole.
  std::string ids = "[1";
  for (int i = 0; i < 200'000; ++i)
    ids += ", 12";
  CHECK(read_trace(dir.write(line(ids + "]")), {}).value().at(0).hash_ids.size() == 200'001);
}

TEST_CASE("replay trace: a limit stops the reading", "[replay]") {
  const scratch dir;
  const auto file = dir.write(line("[1]") + "\n" + line("[2]") + "\nnonsense\n");
  CHECK(!read_trace(file, {}).has_value());
  CHECK(!read_trace(file, 3).has_value());
  CHECK(read_trace(file, 2).value().size() == 2);
  CHECK(read_trace(file, 1).value().size() == 1);
  CHECK(read_trace(file, 0).value().empty());
}

TEST_CASE("replay trace: generator parameters: any trailing part may be left out, nothing else", "[replay]") {
  CHECK(parse_loogle("loogle").value() == loogle_spec{100, 20480, 20, 128});
  CHECK(parse_loogle("loogle:").value() == loogle_spec{});
  CHECK(parse_loogle("loogle:3").value() == loogle_spec{3, 20480, 20, 128});
  CHECK(parse_loogle("loogle:3,4").value() == loogle_spec{3, 4, 20, 128});
  CHECK(parse_loogle("loogle:3,4,5").value() == loogle_spec{3, 4, 5, 128});
  CHECK(parse_loogle("loogle:3,0,5,6").value() == loogle_spec{3, 0, 5, 6});
  for (const auto* bad : {"loogle:0",          "loogle:1,1,0", "loogle:,",
                          "loogle:1,",         "loogle:1,,2",  "loogle:1,2,3,4,5",
                          "loogle:1,2,3,4,",   "loogle:-1",    "loogle:+1",
                          "loogle: 1",         "loogle:1 ",    "loogle:1.5",
                          "loogle:x",          "loogle:1,2x",  "loogle:99999999999999999999",
                          "loogle:4294967297", "loogle1",      "loogle,1",
                          "loogle:1:2",        "other:1",      ""}) {
    INFO(bad);
    const auto got = parse_loogle(bad);
    REQUIRE(!got.has_value());
    CHECK(got.error().code == errc::invalid_argument);
    CHECK(got.error().text.find("GROUPS,PREFIX_TOKENS,QUERIES,QUERY_TOKENS") != std::string::npos);
  }
}

TEST_CASE("replay trace: generated requests share the prefix of their group and nothing else", "[replay]") {
  // 100 tokens of prefix in blocks of 16: 6 full blocks; the 7th holds 4 tokens of prefix and belongs to the query.
  const auto requests = make_loogle({5, 100, 7, 30}, 16, {});
  REQUIRE(requests.has_value());
  REQUIRE(requests->size() == 35);
  std::map<std::vector<std::uint64_t>, std::size_t> prefixes;
  std::map<std::uint64_t, std::size_t> owners;
  for (const auto& request : *requests) {
    REQUIRE(request.hash_ids.size() == 130 / 16);
    CHECK(request.input_length == 130);
    ++prefixes[{request.hash_ids.begin(), request.hash_ids.begin() + 6}];
    for (const auto id : request.hash_ids)
      ++owners[id];
  }
  CHECK(prefixes.size() == 5);
  for (const auto& [prefix, count] : prefixes) {
    CHECK(count == 7);
    for (const auto id : prefix)
      CHECK(owners[id] == 7);
  }
  CHECK(owners.size() == 5 * 6 + 35 * 2);
  const auto hits = expect_hits(*requests);
  CHECK(hits == expected_hits{35 * 8, 30 * 6, 5 * 6 + 35 * 2, 0});
}

TEST_CASE("replay trace: the generated order is fixed and mixes the groups", "[replay]") {
  const auto requests = make_loogle({}, 512, {}).value();
  REQUIRE(requests.size() == 2000);
  CHECK(requests == make_loogle({}, 512, {}).value());
  CHECK(expect_hits(requests) == expected_hits{80'000, 1900 * 40, 100 * 40, 0});
  // Distance between two requests of one group, in requests.
  std::map<std::uint64_t, std::size_t> last;
  std::vector<std::size_t> distances;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto group = requests[i].hash_ids[0] / 40;
    if (const auto before = last.find(group); before != last.end())
      distances.push_back(i - before->second);
    last[group] = i;
  }
  std::sort(distances.begin(), distances.end());
  const auto median = distances[distances.size() / 2];
  CHECK(median >= 8);
  CHECK(median <= 16);
  CHECK(distances.front() == 1);
  CHECK(distances.back() > 40);
  // A limit cuts the same sequence short.
  const auto some = make_loogle({}, 512, 123).value();
  CHECK(std::equal(some.begin(), some.end(), requests.begin()));
  CHECK(some.size() == 123);
  CHECK(make_loogle({3, 512, 1, 0}, 512, 100).value().size() == 3);
}

TEST_CASE("replay trace: a generated trace without blocks or beyond all bounds is refused", "[replay]") {
  CHECK(make_loogle({1, 100, 1, 100}, 512, {}).error().code == errc::invalid_argument);
  CHECK(make_loogle({1, 100, 1, 100}, 0, {}).error().code == errc::invalid_argument);
  constexpr auto huge = std::uint64_t{1} << 32U;
  CHECK(make_loogle({huge, 16, huge, 16}, 16, {}).error().code == errc::limit_exceeded);
  CHECK(make_loogle({huge, 16, huge, 16}, 16, 1).error().code == errc::limit_exceeded);
  CHECK(make_loogle({1, huge, 1, 16}, 1, {}).error().code == errc::limit_exceeded);
  CHECK(make_loogle({1 << 20, 1 << 20, 1 << 8, 16}, 1, {}).error().code == errc::limit_exceeded);
  CHECK(make_loogle({1 << 20, 16, 1 << 8, 16}, 16, 10).value().size() == 10);
}

TEST_CASE("replay trace: a trace is opened by name", "[replay]") {
  const scratch dir;
  const auto file = dir.write(line("[1, 2]") + "\n" + line("[]"));
  const auto from_file = open_trace(file.string(), 16, {});
  REQUIRE(from_file.has_value());
  CHECK(from_file->name == "trace.jsonl");
  CHECK(from_file->blocks() == 2);
  const auto generated = open_trace("loogle:2,64,3", 16, 4);
  REQUIRE(generated.has_value());
  CHECK(generated->name == "loogle:2,64,3,128");
  CHECK(generated->requests.size() == 4);
  CHECK(generated->blocks() == 4 * 12);
  CHECK(open_trace("loogle", 512, 1).value().name == "loogle:100,20480,20,128");
  CHECK(open_trace("loogle:x", 512, 1).error().code == errc::invalid_argument);
  // Not the generator: a file of that name, which does not exist.
  CHECK(open_trace("loogle.jsonl", 512, 1).error().code == errc::io_error);
  CHECK(open_trace("./loogle", 512, 1).error().code == errc::io_error);
}

TEST_CASE("replay trace: keys are chained: each depends on all ids before it and on the salt", "[replay]") {
  const std::vector<std::uint64_t> ids{1, 2, 3, 3};
  const auto keys = chain_keys(ids);
  REQUIRE(keys.size() == 4);
  CHECK(std::set<key_digest>(keys.begin(), keys.end()).size() == 4);
  CHECK(chain_keys(ids) == keys);
  CHECK(chain_keys(std::vector<std::uint64_t>{1, 2}) == std::vector<key_digest>(keys.begin(), keys.begin() + 2));
  const auto other = chain_keys(std::vector<std::uint64_t>{9, 2, 3, 3});
  for (std::size_t i = 0; i < keys.size(); ++i)
    CHECK(other[i] != keys[i]);
  const auto salted = chain_keys(ids, 1);
  for (std::size_t i = 0; i < keys.size(); ++i)
    CHECK(salted[i] != keys[i]);
  CHECK(chain_keys({}).empty());
  const auto parents = parents_of(keys);
  CHECK(parents[0].is_null());
  CHECK(std::equal(parents.begin() + 1, parents.end(), keys.begin()));
  CHECK(parents_of({}).empty());
}

TEST_CASE("replay trace: the expected hits match a trace that was checked by hand", "[replay]") {
  const std::vector<trace_request> requests{
      {0, 0, 0, {1, 2, 3}}, {0, 0, 0, {1, 2, 4}}, {0, 0, 0, {}}, {0, 0, 0, {5}}, {0, 0, 0, {1, 2, 3}}};
  CHECK(expect_hits(requests) == expected_hits{10, 2 + 3, 5, 0});
  // 4 blocks: [1 2 3], [3 1 2 4], [1 2 4 5], then the last finds 1 and 2 only.
  CHECK(expect_hits(requests, 4) == expected_hits{10, 2 + 2, 5, 2});
  // 2 blocks: [2 3]; 1 was evicted; 1 evicts 2, 2 evicts 3, 4 evicts 1: [2 4]; [4 5]; nothing.
  CHECK(expect_hits(requests, 2).hit_blocks == 0);
  CHECK(expect_hits(requests, 0).hit_blocks == 0);
  // The same id after another prefix is another block.
  const std::vector<trace_request> chained{{0, 0, 0, {1, 2}}, {0, 0, 0, {3, 2}}};
  CHECK(expect_hits(chained) == expected_hits{4, 0, 4, 0});
}

TEST_CASE("replay trace: the real trace has the known number of hits", "[replay]") {
  const auto file = real_trace();
  if (!std::filesystem::exists(file)) {
    std::cout << "skipped: no " << file.string() << " beside the repository\n";
    return;
  }
  const auto requests = read_trace(file, {});
  REQUIRE(requests.has_value());
  CHECK(requests->size() == 12'031);
  const auto hits = expect_hits(*requests);
  CHECK(hits.blocks == 288'500);
  CHECK(hits.hit_blocks == 105'710);
  CHECK(hits.unique_blocks == 182'790);
  // Known to four digits for limited capacities.
  for (const auto& [capacity, ratio] : {std::pair{30'000U, 3257}, std::pair{10'000U, 2112}, std::pair{3'000U, 650}}) {
    const auto limited = expect_hits(*requests, capacity);
    INFO(capacity);
    CHECK((limited.hit_blocks * 10'000 + limited.blocks / 2) / limited.blocks == static_cast<std::uint64_t>(ratio));
  }
}

} // namespace replay_trace_test
