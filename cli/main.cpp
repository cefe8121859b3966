#include "base/log.hpp"
#include "cli/program.hpp"

#include <CLI/CLI.hpp>

#include <exception>
#include <iostream>

namespace {

constexpr const char* set_help =
    "Override one config value, as in actors.port=0 or storage.ranks[0].slab_bytes=\"1 GiB\"; "
    "may be given several times";

void add_overrides(CLI::App& command, std::vector<std::string>& overrides) {
  command.add_option("--set", overrides, set_help)->type_name("PATH=VALUE")->allow_extra_args(false);
}

int run(int argc, char** argv) {
  using namespace troupe::cli;
  CLI::App app("Troupe keeps the KV caches of LLM inference engines outside the GPU and shares them.", "troupe");
  app.set_version_flag("--version", std::string("troupe ") + TROUPE_VERSION);
  app.require_subcommand(1);
  app.footer("Exit codes: 0 all went well, 1 it ran and something failed, 2 the command line or the config is wrong.");

  serve_options serving;
  auto* serve_command = app.add_subcommand("serve", "Run a node until SIGINT or SIGTERM, then drain and exit");
  serve_command->add_option("--config", serving.config, "The node's config file")->required()->type_name("FILE");
  add_overrides(*serve_command, serving.overrides);
  serve_command->footer("Prints one line of JSON on stdout when ready:\n"
                        "  {\"event\":\"ready\",\"node\":NAME,\"actors\":{\"host\":HOST,\"port\":PORT}}\n"
                        "Logs go to stderr. A second signal while draining ends the program at once.");

  replay_options replaying;
  auto* replay_command =
      app.add_subcommand("replay", "Replay a request trace: look up, load and check every byte, save what is missing");
  replay_command
      ->add_option("--trace", replaying.trace,
                   "A trace file (JSON lines), or the generator loogle:GROUPS,PREFIX_TOKENS,QUERIES,QUERY_TOKENS")
      ->required()
      ->type_name("FILE");
  auto* config = replay_command->add_option("--config", replaying.config, "Config of the node to run in this process")
                     ->type_name("FILE");
  auto* attach = replay_command
                     ->add_option("--attach", replaying.attach,
                                  "Use the node that serves there, on this host, instead of an own one")
                     ->type_name("HOST:PORT");
  config->excludes(attach);
  replay_command
      ->add_option_function<std::uint32_t>(
          "--attach-limit", [&](std::uint32_t seconds) { replaying.attach_limit = std::chrono::seconds(seconds); },
          "Seconds to wait for a node that does not answer, at the start and when it was lost (20 if not given)")
      ->check(CLI::Range(1, 86400))
      ->type_name("N")
      ->needs(attach);
  replay_command->add_option("--namespace", replaying.space, "Namespace to work in; the node's first if not given")
      ->type_name("NAME");
  replay_command->add_option("--limit", replaying.limit, "Replay the first N requests only")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  replay_command->add_option("--concurrency", replaying.concurrency, "Requests under way at once")
      ->check(CLI::Range(1, 256))
      ->type_name("N")
      ->capture_default_str();
  replay_command->add_option("--page-bytes", replaying.page_bytes, "Bytes of a page on one rank; own node only")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->excludes(attach);
  replay_command->add_option("--ranks", replaying.ranks, "Ranks a key must be on to be complete; own node only")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->excludes(attach);
  replay_command
      ->add_option("--capacity-pages", replaying.capacity_pages,
                   "Slots per rank; own node only. As many as the trace needs if neither this nor --config "
                   "is given")
      ->check(CLI::Range(std::uint64_t{16}, std::uint64_t{1} << 31))
      ->type_name("N")
      ->excludes(attach);
  replay_command
      ->add_option("--salt", replaying.salt,
                   "Other keys for the same trace, so that a second replay starts cold on a node that has seen it")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  replay_command
      ->add_option_function<std::string>(
          "--device",
          [&](const std::string& text) {
            if (text != "host")
              replaying.gpu = text == "cuda" ? 0 : std::stoi(text.substr(5));
          },
          "Where the KV cache lies: host memory, or the memory of a GPU (host if not given)")
      ->check(CLI::IsMember({"host", "cuda"}) |
              CLI::Validator(
                  [](const std::string& text) {
                    const bool good = text.size() > 5 && text.size() < 9 && text.starts_with("cuda:") &&
                                      text.find_first_not_of("0123456789", 5) == std::string::npos;
                    return good ? std::string() : "expected host, cuda or cuda:N";
                  },
                  "cuda:N"))
      ->type_name("host|cuda|cuda:N");
  auto* transfer_only =
      replay_command->add_flag("--transfer-only", replaying.transfer_only,
                               "Neither fill blocks nor compare them, to measure how fast pages are moved");
  auto* engine = replay_command->add_flag("--engine", replaying.engine,
                                          "Play the trace on a model of an engine, through both halves of its "
                                          "connector");
  engine->excludes(transfer_only);
  replay_command
      ->add_option("--blocks-per-page", replaying.blocks_per_page,
                   "With --engine: blocks of the engine that make one page")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->capture_default_str()
      ->needs(engine);
  replay_command
      ->add_option("--kv-blocks", replaying.kv_blocks,
                   "With --engine: blocks of KV cache on each worker; too few for all requests under way lead to "
                   "preemptions")
      ->check(CLI::Range(1U, 1U << 30U))
      ->type_name("N")
      ->needs(engine);
  replay_command
      ->add_option("--inject-faults", replaying.faults,
                   "With --engine: abort requests, let blocks run short, and damage pages of an own node on disk, as "
                   "this seed says")
      ->check(CLI::NonNegativeNumber)
      ->type_name("SEED")
      ->needs(engine);
  replay_command->add_flag("--json", replaying.json, "Print the report as one JSON object");
  replay_command->add_flag("--quiet", replaying.quiet, "No progress on stderr");
  add_overrides(*replay_command, replaying.overrides);
  replay_command->footer("Without --config and --attach, a node of its own runs below a temporary directory beside the "
                         "working directory (or data_dir, with --set) and is removed afterwards.");

  check_config_options checking;
  auto* check_command =
      app.add_subcommand("check-config", "Say what is wrong with a config, or print the effective one");
  check_command->add_option("FILE", checking.config, "The config file")->required();
  add_overrides(*check_command, checking.overrides);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? exit_ok : exit_usage;
  }
  if (serve_command->parsed())
    return serve(serving);
  if (replay_command->parsed())
    return replay(replaying);
  return check_config(checking);
}

} // namespace

int main(int argc, char** argv) {
  int code = troupe::cli::exit_failed;
  try {
    code = run(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "troupe: " << e.what() << '\n';
  }
  troupe::log::shutdown();
  return code;
}
