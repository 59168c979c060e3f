// Where S3 is and who asks: from the environment and the files that AWS's own tools read.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "fetch/sigv4.hpp"
#include "shoal/result.hpp"

namespace shoal::fetch {

struct AwsSettings {
  AwsCredentials credentials;  ///< empty: requests are not signed, as for a public bucket
  std::string region;
  std::string endpoint;   ///< "http://127.0.0.1:9000"; empty: Amazon's, for the region
  std::string ca_bundle;  ///< a file of certificates; empty: the machine's
};

/// The sections of a file of settings: "[name]", then "key = value". '#' and ';' begin comments at the start of a line.
using AwsFile = std::map<std::string, std::map<std::string, std::string>>;
AwsFile parse_aws_file(std::string_view text);

/// AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else the profile AWS_PROFILE ("default") in
/// ~/.aws/credentials and ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE). AWS_REGION, AWS_DEFAULT_REGION, the
/// profile's region, else us-east-1. AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else the profile's endpoint_url. AWS_CA_BUNDLE.
///   Errors  kInvalidArgument: a key without its secret; a profile that does not exist; an endpoint that is no http:// or
///           https:// URL; kUnimplemented: a profile whose credentials are had in another way (SSO, a role, a process)
Result<AwsSettings> read_aws_settings();

}  // namespace shoal::fetch
