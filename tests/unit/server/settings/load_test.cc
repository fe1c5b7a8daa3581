#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "server/settings/settings.h"
#include "server/settings/settings_table.h"

namespace attend {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Args = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

class LoadSettingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "attend_settings_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".conf";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // The path of a file that holds `text`.
  const std::string& File(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }

  static std::string ErrorOf(const Args& args, const Environment& environment = {}) {
    const auto loaded = LoadSettings(args, environment);
    return loaded.ok() ? "no error" : std::string(loaded.status().message());
  }

  static std::string OriginOf(const LoadedSettings& loaded, const std::string& name) {
    for (const SettingReport& setting : loaded.report) {
      if (setting.name == name) return setting.origin;
    }
    return "absent";
  }

  std::string path_;
};

TEST_F(LoadSettingsTest, StartsFromDefaults) {
  const auto loaded = LoadSettings({}, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->settings.listen, ElementsAre("127.0.0.1:50051"));
  EXPECT_EQ(loaded->settings.max_message_bytes, 256 << 20);
  EXPECT_EQ(loaded->settings.drain_grace, absl::Milliseconds(700));
  EXPECT_FALSE(loaded->settings.server_name.empty());
  EXPECT_EQ(loaded->print, "");
  EXPECT_EQ(loaded->report.size(), SettingRows().size());
  for (const SettingReport& setting : loaded->report) EXPECT_EQ(setting.origin, "default");
}

TEST_F(LoadSettingsTest, FlagBeatsEnvironment) {
  const auto loaded = LoadSettings({"--threads", "3"}, {{"ATTEND_THREADS", "2"}});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->settings.threads, 3);
  EXPECT_EQ(OriginOf(*loaded, "threads"), "flag");
}

TEST_F(LoadSettingsTest, EnvironmentBeatsFile) {
  const auto loaded = LoadSettings({"--config", File("threads = 1\n")}, {{"ATTEND_THREADS", "2"}});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->settings.threads, 2);
  EXPECT_EQ(OriginOf(*loaded, "threads"), "environment");
}

TEST_F(LoadSettingsTest, FlagBeatsFile) {
  const auto loaded = LoadSettings({"--threads=3", "--config", File("threads = 1\n")}, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->settings.threads, 3);
  EXPECT_EQ(OriginOf(*loaded, "threads"), "flag");
}

TEST_F(LoadSettingsTest, FileBeatsDefault) {
  const auto loaded = LoadSettings({"--config", File("threads = 1\n")}, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->settings.threads, 1);
  EXPECT_EQ(OriginOf(*loaded, "threads"), "file");
  EXPECT_EQ(OriginOf(*loaded, "config"), "flag");
  EXPECT_EQ(OriginOf(*loaded, "compute-nice"), "default");
}

TEST_F(LoadSettingsTest, EnvironmentNamesTheFile) {
  const auto loaded = LoadSettings({}, {{"ATTEND_CONFIG", File("threads = 1\n")}});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->settings.threads, 1);
  EXPECT_EQ(OriginOf(*loaded, "config"), "environment");
}

TEST_F(LoadSettingsTest, EverySettingIsFlagVariableAndKey) {
  const Settings defaults = DefaultSettings();
  for (const SettingRow& row : SettingRows()) {
    const std::string value = row.get(defaults);
    std::string variable = "ATTEND_" + row.name;
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    const auto from_flag = LoadSettings({"--" + row.name + "=" + value}, {});
    ASSERT_TRUE(from_flag.ok()) << from_flag.status();
    EXPECT_EQ(OriginOf(*from_flag, row.name), "flag") << row.name;
    const auto from_environment = LoadSettings({}, {{variable, value}});
    ASSERT_TRUE(from_environment.ok()) << from_environment.status();
    EXPECT_EQ(OriginOf(*from_environment, row.name), "environment") << row.name;
    const auto from_file =
        LoadSettings({"--config", File(row.name + " = \"" + value + "\"\n")}, {});
    ASSERT_TRUE(from_file.ok()) << from_file.status();
    EXPECT_EQ(OriginOf(*from_file, row.name), "file") << row.name;
  }
}

TEST_F(LoadSettingsTest, ReadsValuesOfEachKind) {
  const auto loaded =
      LoadSettings({"--listen", "127.0.0.1:0,unix:/tmp/a.sock", "--listen=[::1]:0",
                    "--admin-listen=", "--warm=false", "--allow-insecure-remote",
                    "--max-message-bytes", "1GiB", "--max-queue-delay=500us", "--log-format",
                    "json", "--log-level=debug", "--max-head-dim=64", "--ready-file", ""},
                   {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->settings.listen, ElementsAre("127.0.0.1:0", "unix:/tmp/a.sock", "[::1]:0"));
  EXPECT_EQ(loaded->settings.admin_listen, "");
  EXPECT_FALSE(loaded->settings.warm);
  EXPECT_TRUE(loaded->settings.allow_insecure_remote);
  EXPECT_EQ(loaded->settings.max_message_bytes, 1 << 30);
  EXPECT_EQ(loaded->settings.max_queue_delay, absl::Microseconds(500));
  EXPECT_EQ(loaded->settings.log_format, LogFormat::kJson);
  EXPECT_EQ(loaded->settings.log_level, LogLevel::kDebug);
  EXPECT_EQ(loaded->settings.limits.max_head_dim, 64);
}

TEST_F(LoadSettingsTest, ReadsListsFromFiles) {
  for (const char* text : {"listen = [\"127.0.0.1:1\", \"unix:/x\"]\n",
                           "# comment\n\nlisten = \"127.0.0.1:1,unix:/x\"  # two\n",
                           "listen = [\"127.0.0.1:1\",\n  \"unix:/x\"]\n"}) {
    const auto loaded = LoadSettings({"--config", File(text)}, {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_THAT(loaded->settings.listen, ElementsAre("127.0.0.1:1", "unix:/x")) << text;
  }
}

TEST_F(LoadSettingsTest, PrintsConfigThatReadsBackTheSame) {
  const auto first = LoadSettings({"--print-config", "--listen=127.0.0.1:7,unix:/tmp/x.sock",
                                   "--server-name=a,b", "--max-queue-delay=2ms"},
                                  {{"ATTEND_THREADS", "2"}});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(first->print, AllOf(HasSubstr("  # environment\n"), HasSubstr("  # flag\n"),
                                  HasSubstr("  # default\n")));
  const auto second = LoadSettings({"--config", File(first->print)}, {});
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->report.size(), first->report.size() + 1);  // "config" itself
  for (std::size_t i = 0; i < first->report.size(); ++i) {
    EXPECT_EQ(second->report[i + 1].value, first->report[i].value) << first->report[i].name;
  }
}

TEST_F(LoadSettingsTest, PrintsAlignedColumns) {
  const std::string print = LoadSettings({"--print-config"}, {})->print;
  std::istringstream lines(print);
  std::string first;
  std::getline(lines, first);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line.find(" = "), first.find(" = ")) << line;
    EXPECT_EQ(line.rfind("  # "), first.rfind("  # ")) << line;
  }
}

TEST_F(LoadSettingsTest, HelpListsEverySettingWithItsDefault) {
  const auto loaded = LoadSettings({"--help"}, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  for (const SettingRow& row : SettingRows()) {
    EXPECT_THAT(loaded->print, HasSubstr("--" + row.name));
  }
  EXPECT_THAT(loaded->print, HasSubstr("256MiB"));
}

TEST_F(LoadSettingsTest, VersionPrintsOneLine) {
  EXPECT_EQ(LoadSettings({"--version"}, {})->print, "attend-server 0.1.0\n");
}

TEST_F(LoadSettingsTest, RefusesUnknownNamesOfEverySource) {
  EXPECT_EQ(ErrorOf({"--thread=2"}), "--thread: no such flag, did you mean --threads?; see --help");
  EXPECT_EQ(ErrorOf({"serve"}), "\"serve\": is not a flag; flags begin with --, see --help");
  EXPECT_EQ(
      ErrorOf({}, {{"ATTEND_TREADS", "2"}}),
      "ATTEND_TREADS: no such setting, did you mean ATTEND_THREADS?; unset it, or see --help");
  EXPECT_EQ(ErrorOf({"--config", File("thread = 2\n")}),
            path_ + ":1: thread: no such setting, did you mean threads?; see --help");
}

TEST_F(LoadSettingsTest, IgnoresVariablesOfOthers) {
  EXPECT_TRUE(LoadSettings({}, {{"ATTEND_SERVER", "localhost:50051"},
                                {"ATTEND_TEST_SERVER", "x"},
                                {"ATTENDANCE", "x"},
                                {"PATH", "/bin"},
                                {"ATTEND_SERVICE_HOST", "10.0.0.1"},
                                {"ATTEND_SERVICE_PORT", "50051"},
                                {"ATTEND_SERVICE_PORT_GRPC", "50051"},
                                {"ATTEND_PORT", "tcp://10.0.0.1:50051"},
                                {"ATTEND_PORT_50051_TCP", "tcp://10.0.0.1:50051"},
                                {"ATTEND_PORT_50051_TCP_PROTO", "tcp"},
                                {"ATTEND_SERVER_PORT_50051_TCP_ADDR", "10.0.0.1"}})
                  .ok());
}

TEST_F(LoadSettingsTest, RefusesMalformedFiles) {
  EXPECT_THAT(ErrorOf({"--config", "/nonexistent/attend.conf"}), HasSubstr("cannot be read"));
  EXPECT_THAT(ErrorOf({"--config", ::testing::TempDir()}), HasSubstr("is not a regular file"));
  EXPECT_THAT(ErrorOf({"--config", ""}), HasSubstr("--config: is empty"));
  EXPECT_THAT(ErrorOf({"--config", File("[server]\nthreads = 2\n")}), HasSubstr("has a section"));
  EXPECT_THAT(ErrorOf({"--config", File("server.threads = 2\n")}), HasSubstr("has a section"));
  EXPECT_THAT(ErrorOf({"--config", File("threads = 2\nwarm = true\nthreads = 3\n")}),
              HasSubstr("threads: is given twice"));
  EXPECT_THAT(ErrorOf({"--config", File("threads = 2\nthreads = 3\n")}),
              HasSubstr("threads: has 2 values"));
  EXPECT_THAT(ErrorOf({"--config", File("config = \"other\"\n")}),
              HasSubstr("a file cannot name another file"));
  EXPECT_THAT(ErrorOf({"--config", File("admin-listen = [127.0.0.1:9090\n")}),
              HasSubstr("has a [ without a ]"));
  EXPECT_THAT(ErrorOf({"--config", File("ready-file = \"/tmp/a#b\"\n")}),
              HasSubstr("a value cannot hold quotes or #"));
  EXPECT_THAT(ErrorOf({"--config", File("these are words\n")}), HasSubstr("no such setting"));
}

TEST_F(LoadSettingsTest, NamesTheLineOfAFilesMistake) {
  const auto error_of = [this](const std::string& text) {
    return ErrorOf({"--config", File(text)}).substr(path_.size());
  };
  EXPECT_THAT(error_of("# one\n\nthread = 2\n"), StartsWith(":3: thread: no such setting"));
  EXPECT_THAT(error_of("warm = true\n threads = many\n"),
              StartsWith(":2: threads: \"many\" is not a whole number"));
  EXPECT_THAT(error_of("threads = 2\nwarm = true\nthreads = 3\n"),
              StartsWith(":3: threads: is given twice"));
  EXPECT_THAT(error_of("warm = true\n[server]\nthreads = 2\n"), StartsWith(":2: has a section"));
  EXPECT_THAT(error_of("warm = true\nserver.threads = 2\n"),
              StartsWith(":2: threads: has a section or a dotted key"));
  EXPECT_THAT(error_of("listen = [\"127.0.0.1:1\",\n  \"unix:/x\"]\nwarm = maybe # or not\n"),
              StartsWith(":3: warm: \"maybe\" is not a switch"));
  EXPECT_THAT(error_of("warm = true\nlisten = [127.0.0.1:1\nthreads = 2\n"),
              StartsWith(":2: has a [ without a ]"));
  EXPECT_THAT(error_of("warm = true\nlisten = 127.0.0.1:1]\n"),
              StartsWith(":2: has a ] without a ["));
  EXPECT_THAT(error_of("warm = true\nthese are words # indeed\n"),
              StartsWith(":2: these are words: no such setting"));
  EXPECT_THAT(error_of("# a [ alone\n; and another ]\nwarm = true  # ] [[\nthread = 2\n"),
              StartsWith(":4: thread: no such setting"));
}

TEST_F(LoadSettingsTest, RefusesWhatIsNoRegularFileAtOnce) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);  // that nobody writes to
  EXPECT_EQ(ErrorOf({"--config", path_}),
            path_ +
                ": is not a regular file but a folder, a pipe, a socket or a device; write the "
                "settings to a file, and name that with --config or ATTEND_CONFIG");
  EXPECT_THAT(ErrorOf({"--config", "/dev/null"}), HasSubstr("is not a regular file"));
}

TEST_F(LoadSettingsTest, RefusesAReadyFileThatCannotBeWritten) {
  EXPECT_EQ(
      ErrorOf({"--ready-file=/no/such/folder/ready.json"}),
      "ready-file: \"/no/such/folder/ready.json\" cannot be written, /no/such/folder is not a "
      "folder; create it, or name a file in another one");
  EXPECT_THAT(ErrorOf({"--ready-file", File("") + "/ready.json"}), HasSubstr("is not a folder"));
  EXPECT_THAT(ErrorOf({"--ready-file=/usr/lib"}), HasSubstr("is a folder; name a file"));
  EXPECT_EQ(ErrorOf({"--ready-file=" + path_}), "no error");
}

TEST_F(LoadSettingsTest, AcceptsAnEmptyFile) {
  EXPECT_TRUE(LoadSettings({"--config", File("")}, {}).ok());
}

TEST_F(LoadSettingsTest, ChecksValuesThatAStrongerSourceHides) {
  EXPECT_EQ(ErrorOf({"--threads=1"}, {{"ATTEND_THREADS", "many"}}),
            "ATTEND_THREADS: \"many\" is not a whole number; write digits only");
}

TEST_F(LoadSettingsTest, RefusesAFlagGivenTwice) {
  for (const Args& args : {Args{"--threads", "1", "--threads", "2"}, Args{"--warm", "--warm=false"},
                           Args{"--config", File(""), "--config", File("")}}) {
    EXPECT_EQ(ErrorOf(args), args.front() + ": is given twice; remove one of them");
  }
}

TEST_F(LoadSettingsTest, RefusesAFlagWithoutItsValue) {
  EXPECT_THAT(ErrorOf({"--threads"}), HasSubstr("--threads"));
}

struct BadValue {
  std::string arg;
  std::string message;
};
class BadValueTest : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadValueTest, SaysWhatToChange) {
  const auto loaded = LoadSettings({GetParam().arg}, {});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(loaded.status().message()), StartsWith(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadValueTest,
    ::testing::Values(
        BadValue{"--listen=", "--listen: is empty; write at least one address"},
        BadValue{"--listen=localhost", "--listen: \"localhost\" has no port; write host:port"},
        BadValue{"--listen=127.0.0.1:1,127.0.0.1:1",
                 "--listen: \"127.0.0.1:1\" is given twice; remove one"},
        BadValue{
            "--listen=0.0.0.0:50051",
            "listen: \"0.0.0.0:50051\" can be reached from other hosts, and this server has no "
            "TLS; listen on 127.0.0.1"},
        BadValue{"--admin-listen=0.0.0.0:9090",
                 "admin-listen: \"0.0.0.0:9090\" can be reached from other hosts"},
        BadValue{"--admin-listen=unix:/x", "--admin-listen: \"unix:/x\" is a Unix socket"},
        BadValue{"--allow-insecure-remote=yes",
                 "--allow-insecure-remote: \"yes\" is not a switch; write true or false"},
        BadValue{"--ready-file=ready", "--ready-file: \"ready\" is not the absolute path"},
        BadValue{"--server-name=", "--server-name: \"\" is not a name; write 1 to 253"},
        BadValue{"--threads=-1", "--threads: -1 is out of range; write a value from 0 to 4096"},
        BadValue{"--threads=two", "--threads: \"two\" is not a whole number; write digits only"},
        BadValue{"--compute-nice=20", "--compute-nice: 20 is out of range; write a value from 0"},
        BadValue{"--max-message-bytes=2GiB",
                 "--max-message-bytes: 2GiB is out of range; write a value from 1KiB to 2047MiB"},
        BadValue{"--max-message-bytes=10MB", "--max-message-bytes: \"10MB\" is not a size; write"},
        BadValue{"--memory-quota-bytes=64MiB",
                 "memory-quota-bytes: 64MiB cannot hold one message of 256MiB; raise it"},
        BadValue{"--max-streams-per-connection=0", "--max-streams-per-connection: 0 is out of"},
        BadValue{"--max-queued-requests=0", "--max-queued-requests: 0 is out of range"},
        BadValue{"--max-queued-bytes=0", "--max-queued-bytes: 0 is out of range"},
        BadValue{"--max-queued-bytes=255MiB",
                 "max-queued-bytes: 255MiB cannot hold one message of 256MiB; raise it"},
        BadValue{"--max-batch-requests=0", "--max-batch-requests: 0 is out of range"},
        BadValue{"--max-batch-flops=0", "--max-batch-flops: 0 is out of range"},
        BadValue{"--max-priority-wait=-1s", "--max-priority-wait: \"-1s\" is not a duration"},
        BadValue{"--max-queue-delay=2", "--max-queue-delay: \"2\" is not a duration; write"},
        BadValue{"--max-queue-delay=2m", "--max-queue-delay: 2m is out of range; write a value"},
        BadValue{"--drain-grace=10s", "drain-grace: 10s leaves nothing of drain-timeout (10s)"},
        BadValue{"--drain-timeout=0", "--drain-timeout: 0 is out of range"},
        BadValue{"--max-connection-age=-1s", "--max-connection-age: \"-1s\" is not a duration"},
        BadValue{"--keepalive-min-ping-interval=0", "--keepalive-min-ping-interval: 0 is out of"},
        BadValue{"--log-level=loud",
                 "--log-level: \"loud\" is not a choice; write one of debug|info|warning|error"},
        BadValue{"--log-format=xml",
                 "--log-format: \"xml\" is not a choice; write one of text|json"},
        BadValue{"--max-head-dim=1025", "--max-head-dim: 1025 is out of range"},
        BadValue{"--max-value-dim=0", "--max-value-dim: 0 is out of range"},
        BadValue{"--max-heads=0", "--max-heads: 0 is out of range"},
        BadValue{"--max-batch=0", "--max-batch: 0 is out of range"},
        BadValue{"--max-length=0", "--max-length: 0 is out of range"},
        BadValue{"--max-score-elements=0", "--max-score-elements: 0 is out of range"}));

}  // namespace
}  // namespace attend
