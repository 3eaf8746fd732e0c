-- GET /version: what Hindsight's clients ask before they use what a server may lack.
tool = { name = "rest_version", description = "What this server has of Hindsight", parameters = { type = "object", properties = {} } }

function tool.execute(_, context)
  return {
    api_version = context.health().version,
    features = {
      observations = false,
      mcp = true,
      worker = false,
      bank_config_api = true,
      bank_llm_health = false,
      file_upload_api = false,
      document_export_api = false,
      document_import_api = false,
      audit_log = false,
      llm_trace = false,
      store_document_text = true,
    },
  }
end
