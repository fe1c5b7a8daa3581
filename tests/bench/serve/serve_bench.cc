// The server against what its parts could do, all measured in one run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/base/freed_memory.h"
#include "tests/bench/serve/echo_server.h"
#include "tests/bench/serve/parts.h"
#include "tests/bench/serve/raw_client.h"

namespace attend::bench {
namespace {

struct Part {
  const char* name;
  std::vector<Figure> (*run)();
};

constexpr Part kParts[] = {{"throughput", Throughput},
                           {"small", SmallRequests},
                           {"batching", Batching},
                           {"head-of-line", HeadOfLine},
                           {"overload", Overload}};

int Main(int argc, char** argv) {
  KeepFreedMemory();  // as attend-server and attend-load do
  CLI::App app("Measures attend-server over TCP and a Unix socket.", "attend-serve-bench");
  std::string json;
  std::string echo_port_file;
  std::vector<std::string> only;
  std::vector<std::string> names;
  for (const Part& part : kParts) names.emplace_back(part.name);
  app.add_option("--json", json, "Also write the figures to this file");
  app.add_option("--only", only, "Parts to run, as P,P,... (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--echo-server", echo_port_file, "Be the raw echo server; for itself")->group("");
  CLI11_PARSE(app, argc, argv);
  if (!echo_port_file.empty()) RunEchoServer(echo_port_file);

  std::vector<Figure> figures;
  for (const Part& part : kParts) {
    if (!only.empty() && std::find(only.begin(), only.end(), part.name) == only.end()) continue;
    std::fprintf(stderr, "attend-serve-bench: %s\n", part.name);
    for (Figure& figure : part.run()) figures.push_back(std::move(figure));
  }
  std::printf("client and servers share this machine's processors; medians of rounds\n");
  PrintFigures(figures);
  if (!json.empty() && !WriteFigures(json, figures)) {
    Die("cannot write " + json);
  }
  return 0;
}

}  // namespace
}  // namespace attend::bench

int main(int argc, char** argv) { return attend::bench::Main(argc, argv); }
