#include "base/log.hpp"
#include "base/threads.hpp"
#include "cli/command_line.hpp"
#include "cli/output.hpp"
#include "cli/signals.hpp"

#include <exception>
#include <iostream>
#include <string_view>

namespace {

int run(int argc, char** argv) {
  using namespace troupe::cli;
  struct runner {
    int operator()(const nothing_to_do& x) const { return x.exit_code; }
    int operator()(const serve_options& x) const { return serve(x); }
    int operator()(const init_options& x) const { return init(x); }
    int operator()(const replay_options& x) const { return replay(x); }
    int operator()(const check_config_options& x) const { return check_config(x); }
    int operator()(const make_trace_options& x) const { return make_trace(x); }
    int operator()(const status_options& x) const { return status(x); }
    int operator()(const top_options& x) const { return top(x); }
    int operator()(const list_namespaces_options& x) const { return list_namespaces(x); }
    int operator()(const remove_namespace_options& x) const { return remove_namespace(x); }
    int operator()(const check_slabs_options& x) const { return check_slabs(x); }
    int operator()(const whatif_options& x) const { return whatif(x); }
    int operator()(const explain_options& x) const { return explain(x); }
    int operator()(const cluster_status_options& x) const { return cluster_status(x); }
    int operator()(const help_options& x) const { return help(x); }
  };
  return std::visit(runner{}, parse_command_line(argc, argv));
}

} // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "serve")
    troupe::cli::hold_back_hangup();
  int code = troupe::cli::exit_failed;
  try {
    troupe::cli::open_standard_streams();
    code = run(argc, argv);
  } catch (const std::exception& e) { // out of threads, open files or memory
    std::cerr << "troupe: " << troupe::error_of(e, "cannot go on").text << '\n';
  }
  troupe::log::shutdown();
  return code;
}
