// Nodes, for administrators: the machines of the service and what they do.
import { api, ask, type Schemas } from '../../lib/api'
import { bytes, count } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { Card, Facts, Page } from '../../ui/page'
import { Empty, Show } from '../../ui/states'
import { Ago, Badge, Progress } from '../../ui/values'
import { forAdmins } from '../admin'

type Node = Schemas['Node']

export default forAdmins('Nodes', Nodes)

function Nodes() {
  const nodes = useLoad((signal) => ask(api.GET('/api/node', { signal })), [], { every: 5 })
  return (
    <Page title="Nodes" calls={[{ method: 'GET', path: '/api/node', login: true }]}>
      <p class="lead">
        The machines that run weir with the same database. One that was silent for 12 seconds leaves the list; the
        others take over its work. <a href="docs/nodes">Many machines</a>
      </p>
      <Show
        of={nodes}
        empty={
          <Card>
            <Empty title="No nodes">
              <p>The list is filled a few seconds after the server has started.</p>
            </Empty>
          </Card>
        }
      >
        {(items) => (
          <div class="node-list">
            {items.map((node) => (
              <NodeCard key={node.id} node={node} />
            ))}
          </div>
        )}
      </Show>
    </Page>
  )
}

function NodeCard({ node }: { node: Node }) {
  const tight = node.diskFree !== undefined && node.diskKeep !== undefined && node.diskFree < node.diskKeep
  return (
    <Card title={node.id} actions={node.alive ? <Badge tone="good">alive</Badge> : <Badge tone="bad">silent</Badge>}>
      {tight && (
        <p class="warning">{`Its disk is almost full: it takes no new media until ${bytes(node.diskKeep!)} are free.`}</p>
      )}
      <Facts
        of={[
          ['Version', node.version],
          ['Does', node.runs.join(', ')],
          ['Cores', count(node.cores)],
          ['Streams on air', count(node.streams)],
          ['Jobs', count(node.jobs)],
          [
            'Encoding',
            node.encodeSlots > 0 && (
              <>
                {`${node.encodeSlotsUsed} of ${node.encodeSlots} slots `}
                <Progress value={node.encodeSlotsUsed / node.encodeSlots} label={`Slots of ${node.id} in use`} />
              </>
            ),
          ],
          ['Disk free', node.diskFree !== undefined && bytes(node.diskFree)],
          ['Address', node.url],
          ['Started', <Ago at={node.startedAt} />],
          ['Last heartbeat', <Ago at={node.lastSeen} />],
        ]}
      />
    </Card>
  )
}
