#include "fetch/aws_settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "fetch/location.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/text_file.hpp"
#include "shm/base/url.hpp"

namespace shoal::fetch {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string first_of(std::initializer_list<std::string> texts) {
  const auto found = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
  return found == texts.end() ? "" : *found;
}

std::string_view without_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = text.find_first_not_of(kSpace), end = text.find_last_not_of(kSpace);
  return begin == text.npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

/// A file that is missing has no sections.
Result<AwsFile> read_file(const char* name, const std::string& beside_home) {
  const std::string home = variable("HOME"), given = variable(name);
  if (given.empty() && home.empty()) return AwsFile();
  const auto text = read_text_file(given.empty() ? home + beside_home : given);
  if (text.status().code() == StatusCode::kNotFound) return AwsFile();
  if (!text.ok()) return text.status();
  return parse_aws_file(*text);
}

/// The profile's keys of both files; those of the credentials file come first.
Result<std::map<std::string, std::string>> read_profile(bool has_keys) {
  const std::string asked = variable("AWS_PROFILE"), profile = asked.empty() ? "default" : asked;
  SHOAL_ASSIGN_OR_RETURN(const AwsFile credentials, read_file("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"));
  SHOAL_ASSIGN_OR_RETURN(const AwsFile config, read_file("AWS_CONFIG_FILE", "/.aws/config"));
  const std::string in_config = profile == "default" ? profile : "profile " + profile;
  std::map<std::string, std::string> keys;
  bool exists = asked.empty() || has_keys;
  for (const auto& [file, section] : {std::pair(&credentials, &profile), std::pair(&config, &in_config)}) {
    const auto found = file->find(*section);
    if (found == file->end()) continue;
    exists = true;
    keys.insert(found->second.begin(), found->second.end());
  }
  if (!exists)
    return invalid_argument("AWS_PROFILE names '{}', which is neither in ~/.aws/credentials nor in ~/.aws/config", asked);
  return keys;
}

}  // namespace

AwsFile parse_aws_file(std::string_view text) {
  AwsFile file;
  std::string section;
  while (!text.empty()) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(whole.size() + 1, text.size()));
    const std::string_view line = without_space(whole);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      section = without_space(line.substr(1, line.size() - 2));
      file[section];
      continue;
    }
    const std::size_t equals = line.find('=');
    const bool is_nested = whole.front() == ' ' || whole.front() == '\t';  // belongs to the key above
    if (equals == line.npos || is_nested) continue;
    file[section][std::string(without_space(line.substr(0, equals)))] = without_space(line.substr(equals + 1));
  }
  return file;
}

Result<AwsSettings> read_aws_settings() {
  AwsSettings settings;
  settings.credentials = {variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"), variable("AWS_SESSION_TOKEN")};
  const bool has_keys = !settings.credentials.empty();
  if (has_keys == settings.credentials.secret_key.empty())
    return invalid_argument("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must both be set, or none of them");
  SHOAL_ASSIGN_OR_RETURN(const auto profile, read_profile(has_keys));
  const auto key = [&](const char* name) {
    const auto found = profile.find(name);
    return found == profile.end() ? std::string() : found->second;
  };
  if (!has_keys) {
    settings.credentials = {key("aws_access_key_id"), key("aws_secret_access_key"), key("aws_session_token")};
    if (settings.credentials.empty() != settings.credentials.secret_key.empty())
      return invalid_argument("~/.aws: the profile has only one of aws_access_key_id and aws_secret_access_key");
    for (const char* const way : {"role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file"}) {
      if (settings.credentials.empty() && !key(way).empty()) {
        return unimplemented(
            "~/.aws/config: Shoal does not get credentials by '{}': set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
            "AWS_SESSION_TOKEN, as `aws configure export-credentials --format env` prints them",
            way);
      }
    }
  }
  settings.region = first_of({variable("AWS_REGION"), variable("AWS_DEFAULT_REGION"), key("region"), "us-east-1"});
  settings.endpoint = first_of({variable("AWS_ENDPOINT_URL_S3"), variable("AWS_ENDPOINT_URL"), key("endpoint_url")});
  settings.ca_bundle = variable("AWS_CA_BUNDLE");
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  const std::string_view scheme = url_scheme(settings.endpoint);
  const bool is_web = scheme == "http" || scheme == "https";
  if (!settings.endpoint.empty() && (!is_web || settings.endpoint.find_first_of("@?#") != std::string::npos))  // may be secret
    return invalid_argument("AWS_ENDPOINT_URL must be http://HOST[:PORT] or https://HOST[:PORT], without a user and a query");
  if (!is_file_name(settings.region)) return invalid_argument("AWS_REGION is '{}', which is no region", settings.region);
  return settings;
}

}  // namespace shoal::fetch
